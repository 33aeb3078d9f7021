//! Transaction-level locks outside of a transaction, at READ COMMITTED; and how any transaction of ours commits.

use super::guard::{Held, Phase};
use super::refusal;
use crate::driver::{Driver, mark_transaction_closed};
use crate::error::{Marker, is_connection_lost};
use crate::sql::{self, xact};
use crate::{Error, Request, Wait, debug};
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;

pub(super) async fn begin<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    if request.budget() == Wait::Never {
        return Box::pin(begin_try(held, request)).await;
    }
    let message = xact::begin(request);
    held.phase = Phase::Open;
    let sent = held.driver().execute(&message).await;
    held.record_wait(request);
    match sent {
        Ok(()) => Ok(()),
        // Boxed, as everything rare is, so that a call's future is no larger than what it needs when nothing goes wrong.
        Err(source) => Err(Box::pin(refused(held, request, source)).await),
    }
}

async fn begin_try<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    let (message, question) = (xact::begin_try(request), xact::try_question(request));
    held.phase = Phase::Open;
    let answer = held
        .driver()
        .execute_and_query_row(&message, &question)
        .await;
    held.record_wait(request);
    let source = match answer {
        Ok(Ok(true)) => return Ok(()),
        Ok(Ok(false)) => {
            let undone = held.driver().execute(sql::ROLLBACK).await;
            return Err(refusal::missed(held, undone));
        }
        Ok(Err(source)) => source,
        Err(source) => return Err(refused(held, request, source).await),
    };
    if held.driver().execute(sql::ROLLBACK).await.is_err() || !refusal::is_unprepared(&source) {
        return Err(refused(held, request, source).await);
    }
    let message = xact::try_by_text(request);
    match held.driver().execute(&message).await {
        Ok(()) => Ok(()),
        Err(source) => Err(refused(held, request, source).await),
    }
}

/// The server has refused the message, so that the session is idle as before.
async fn refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
    source: DieselError,
) -> Error {
    held.phase = Phase::Idle;
    let lock = held.name.text();
    match Marker::of(&source) {
        Some(Marker::NotAvailable) => return Error::NotAvailable { lock },
        Some(Marker::NotDeferrable | Marker::IsolationLevel) => {
            return Error::ForeignTransaction { lock };
        }
        _ => {}
    }
    // One that had failed before refuses everything.
    match refusal::probe(held.driver(), &source).await {
        refusal::State::Lost => Error::Database(source),
        refusal::State::Aborted => Error::ForeignTransaction { lock },
        refusal::State::Alive => refusal::classify(held, request, source).await,
    }
}

/// Commits, and tells why where it cannot.
pub(super) async fn commit<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>) -> Result<(), Error> {
    let (conn, checks) = held.driver_and_checks();
    let mut sent = debug::check_token(conn, checks, NonZeroU32::MIN).await;
    if sent.is_ok() {
        sent = conn.execute(xact::COMMIT).await;
    }
    match sent {
        Ok(()) => {
            mark_transaction_closed(conn, None);
            Ok(())
        }
        Err(source) => Err(Box::pin(commit_refused(held, source)).await),
    }
}

async fn commit_refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    source: DieselError,
) -> Error {
    let lock = held.name.text();
    let conn = held.driver();
    let is_aborted = is_connection_lost(&source) || conn.execute(sql::probe::ALIVE).await.is_err();
    if is_aborted && conn.execute(sql::ROLLBACK).await.is_err() {
        conn.status().set_in_error();
        return Error::CommitUnknown { lock, source };
    }
    mark_transaction_closed(conn, None);
    match Marker::of(&source) {
        Some(Marker::TransactionEnded) => Error::TransactionEnded { lock },
        _ if is_aborted => Error::RolledBack { lock, source },
        // No error leaves a transaction as it is, so there was none.
        Some(Marker::NoTransaction) => Error::TransactionEnded { lock },
        _ => Error::Database(source),
    }
}
