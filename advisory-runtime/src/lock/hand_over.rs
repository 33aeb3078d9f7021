//! Transaction-level locks at REPEATABLE READ and SERIALIZABLE, outside of a transaction.

use super::guard::{Held, Phase};
use super::refusal::{self, State};
use super::verify;
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
    held.process = verify::own_process(held.driver());
    let mut begun = begin_once(held, request).await;
    if let Err(error) = &begun
        && verify::may_repeat(held, error).await
    {
        begun = Box::pin(begin_once(held, request)).await;
    }
    begun
}

async fn begin_once<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    held.phase = Phase::Open;
    if held.budget == Wait::Never {
        return begin_try(held, request).await;
    }
    match held.send(hand_over::begin(request, held.process)).await {
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
    let check = hand_over::check_try(held.process);
    if let Err(source) = held.driver().execute(&check).await {
        return Err(refused(held, source).await);
    }
    let source = match held.send(hand_over::begin(request, held.process)).await {
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
    held.close().await;
    let lock = held.name.text();
    Err(match Marker::of(&source) {
        Some(Marker::IsolationLevel) => Error::ForeignTransaction { lock },
        Some(Marker::PooledSession) => Error::PooledSession { lock },
        _ => Error::Database(source),
    })
}

/// Opens the transaction after a try.
async fn open<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> QueryResult<()> {
    let message = match held.permit {
        Some(permit) => hand_over::open(&request.of_permit(permit), held.process),
        None => hand_over::open(request, held.process),
    };
    held.driver().execute(&message).await
}

/// The connection stays usable after a refused wait that is known to have left no lock. Any other error may have come between the two
/// halves of the hand-over, while the session holds the keys, and closes it.
async fn refused<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>, source: DieselError) -> Error {
    let lock = held.name.text();
    let marker = Marker::of(&source);
    if let Some(Marker::NotDeferrable | Marker::IsolationLevel) = marker {
        held.phase = Phase::Idle;
        return Error::ForeignTransaction { lock };
    }
    let is_lost = is_connection_lost(&source);
    let is_undone = !is_lost && held.driver().execute(sql::ROLLBACK).await.is_ok();
    if !is_undone && refusal::probe(held.driver(), &source).await == State::Lost {
        held.phase = Phase::Idle;
        return Error::Database(source);
    }
    let error = match marker {
        Some(Marker::PooledSession) => Error::PooledSession { lock },
        _ => refusal::classify(held, source).await,
    };
    let may_go_on = match error {
        // The check comes before the keys.
        Error::PooledSession { .. } => is_undone,
        Error::TimedOut { .. } | Error::Deadlock { .. } => is_undone && holds_none(held).await,
        _ => false,
    };
    if may_go_on {
        held.phase = Phase::Idle;
    } else {
        held.close().await;
    }
    error
}

/// Whether the session is known to hold none of the keys by this acquisition.
async fn holds_none<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>) -> bool {
    let message = session::check_none(&held.keys, held.mode);
    held.driver().execute(&message).await.is_ok()
}
