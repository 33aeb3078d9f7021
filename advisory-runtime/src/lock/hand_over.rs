//! Transaction-level locks at REPEATABLE READ and SERIALIZABLE, outside of a transaction.

use super::guard::{Held, Phase};
use super::refusal;
use crate::driver::Driver;
use crate::error::{Marker, is_connection_lost};
use crate::sql::{self, hand_over, session};
use crate::{Error, Request, Wait};
use diesel::result::Error as DieselError;

pub(super) async fn begin<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    held.phase = Phase::Open;
    if request.budget() == Wait::Never {
        return begin_try(held, request).await;
    }
    let message = hand_over::begin(request);
    let sent = held.driver().execute(&message).await;
    held.record_wait(request);
    match sent {
        Ok(()) => Ok(()),
        Err(source) => Err(refused(held, request, source).await),
    }
}

async fn begin_try<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    if let Err(source) = held.driver().execute(&session::check_pooler()).await {
        return Err(refused(held, request, source).await);
    }
    let question = session::try_question(request);
    let answer = held.driver().execute_and_query_row("", &question).await;
    held.record_wait(request);
    match answer {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return Err(refusal::missed(held, Ok(()))),
        Ok(Err(source)) | Err(source) => {
            held.close().await;
            return Err(Error::Database(source));
        }
    }
    match held.driver().execute(&hand_over::open(request)).await {
        Ok(()) => Ok(()),
        Err(source) => {
            held.close().await;
            Err(Error::Database(source))
        }
    }
}

/// A wait that was refused leaves a failed transaction, and no lock. Any other error can have come between the two halves of the
/// hand-over, where the session holds the keys: it closes the connection.
async fn refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
    source: DieselError,
) -> Error {
    let lock = held.name.text();
    if is_connection_lost(&source) {
        held.phase = Phase::Idle;
        held.driver().status().set_in_error();
        return Error::Database(source);
    }
    match Marker::of(&source) {
        Some(Marker::NotDeferrable | Marker::IsolationLevel) => {
            held.phase = Phase::Idle;
            return Error::ForeignTransaction { lock };
        }
        Some(Marker::PooledSession) => {
            held.phase = Phase::Idle;
            drop(held.driver().execute(sql::ROLLBACK).await);
            return Error::PooledSession { lock };
        }
        _ => {}
    }
    let is_undone = held.driver().execute(sql::ROLLBACK).await.is_ok();
    let error = refusal::classify(held, request, source).await;
    if is_undone && matches!(error, Error::TimedOut { .. } | Error::Deadlock { .. }) {
        held.phase = Phase::Idle;
    } else {
        held.close().await;
    }
    error
}
