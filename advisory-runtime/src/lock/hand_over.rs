//! Transaction-level locks at REPEATABLE READ and SERIALIZABLE, outside of a transaction.

use super::guard::{Held, Phase};
use super::{refusal, verify};
use crate::driver::Driver;
use crate::error::{Marker, is_connection_lost};
use crate::sql::{self, hand_over};
use crate::{Error, Request, Wait};
use diesel::QueryResult;
use diesel::result::Error as DieselError;

pub(super) async fn begin<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    held.phase = Phase::Open;
    if held.budget == Wait::Never {
        return begin_try(held, request).await;
    }
    match held.send(hand_over::begin(request)).await {
        Ok(_) => Ok(()),
        Err(source) => Err(refused(held, source).await),
    }
}

/// The try is a message of its own, so that a miss is not an error. Its session-level lock must be on the session that then opens the
/// transaction.
async fn begin_try<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    let mut checked = verify::check_pooler(held.driver()).await;
    if checked.is_ok() {
        checked = held.driver().execute(&hand_over::check_try()).await;
    }
    if let Err(source) = checked {
        return Err(refused(held, source).await);
    }
    let source = match held.send(hand_over::begin(request)).await {
        Ok(Ok(false)) => return Err(refusal::missed(held, Ok(()))),
        Ok(Ok(true)) => match open(held, request).await {
            Ok(()) => return Ok(()),
            Err(source) => source,
        },
        Ok(Err(source)) | Err(source) => source,
    };
    if is_connection_lost(&source) {
        return Err(refused(held, source).await);
    }
    // The session may hold the keys.
    let is_foreign = Marker::of(&source) == Some(Marker::IsolationLevel);
    held.close().await;
    Err(if is_foreign {
        let lock = held.name.text();
        Error::ForeignTransaction { lock }
    } else {
        Error::Database(source)
    })
}

/// Opens the transaction after a try.
async fn open<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> QueryResult<()> {
    let message = match held.permit {
        Some(permit) => hand_over::open(&request.of_permit(permit)),
        None => hand_over::open(request),
    };
    held.driver().execute(&message).await
}

/// A refused wait leaves a failed transaction and no lock. After any other error the session may hold the keys, since it may have come
/// between the two halves of the hand-over: the connection is closed.
async fn refused<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>, source: DieselError) -> Error {
    let phase = std::mem::replace(&mut held.phase, Phase::Idle);
    let lock = held.name.text();
    if is_connection_lost(&source) {
        held.driver().status().set_in_error();
        return Error::Database(source);
    }
    let marker = Marker::of(&source);
    if let Some(Marker::NotDeferrable | Marker::IsolationLevel) = marker {
        return Error::ForeignTransaction { lock };
    }
    held.phase = phase;
    let is_undone = held.driver().execute(sql::ROLLBACK).await.is_ok();
    let error = match marker {
        Some(Marker::PooledSession) => Error::PooledSession { lock },
        _ => refusal::classify(held, source).await,
    };
    match error {
        Error::TimedOut { .. } | Error::Deadlock { .. } | Error::PooledSession { .. }
            if is_undone =>
        {
            held.phase = Phase::Idle;
        }
        _ => held.close().await,
    }
    error
}
