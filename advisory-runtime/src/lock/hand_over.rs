//! Transaction-level locks at REPEATABLE READ and SERIALIZABLE, outside of a transaction.

use super::guard::{Held, Phase};
use super::refusal;
use crate::driver::Driver;
use crate::error::{Marker, is_connection_lost};
use crate::sql::{self, hand_over, session};
use crate::{Error, Request, Wait};
use diesel::QueryResult;
use diesel::result::Error as DieselError;

pub(super) async fn begin<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    held.phase = Phase::Open;
    if held.budget == Wait::Never {
        let checked = held.driver().execute(&session::check_pooler()).await;
        if let Err(source) = checked {
            return Err(refused(held, source).await);
        }
    }
    match held.send(hand_over::begin(request)).await {
        Ok(Ok(true)) if held.budget == Wait::Never => match open(held, request).await {
            Ok(()) => Ok(()),
            Err(source) => Err(refused(held, source).await),
        },
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(refusal::missed(held, Ok(()))),
        Ok(Err(source)) | Err(source) => Err(refused(held, source).await),
    }
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
