//! Transaction-level locks outside of a transaction, at READ COMMITTED; and how any transaction of ours commits.

use super::guard::{Held, Phase};
use super::refusal;
use crate::driver::{Driver, mark_transaction_closed};
use crate::error::{Marker, is_connection_lost};
use crate::sql::{self, xact};
use crate::{Error, Request, debug};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;

pub(super) async fn begin<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    let sent = held.send(xact::begin(request)).await;
    if let Ok(Ok(true)) = sent {
        return Ok(());
    }
    // Boxed, as everything rare is, so that a call's future is no larger than what it needs when nothing goes wrong.
    Box::pin(refused(held, request, sent)).await
}

async fn refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
    mut sent: QueryResult<QueryResult<bool>>,
) -> Result<(), Error> {
    if let Ok(Err(source)) = &sent
        && held.driver().execute(sql::ROLLBACK).await.is_ok()
        && refusal::is_unprepared(source)
    {
        sent = held.send(xact::try_by_text(request)).await;
    }
    let source = match sent {
        Ok(Ok(true)) => return Ok(()),
        Ok(Ok(false)) => {
            let undone = held.driver().execute(&xact::undo_try(request)).await;
            return Err(refusal::missed(held, undone));
        }
        Ok(Err(source)) | Err(source) => source,
    };
    // The message was refused, so that the session is idle as before.
    held.phase = Phase::Idle;
    let lock = held.name.text();
    Err(match Marker::of(&source) {
        Some(Marker::NotAvailable) => held.not_available(),
        Some(Marker::NotDeferrable | Marker::IsolationLevel) => Error::ForeignTransaction { lock },
        _ => match refusal::probe(held.driver(), &source).await {
            refusal::State::Lost => Error::Database(source),
            // One that had failed before refuses everything.
            refusal::State::Aborted => Error::ForeignTransaction { lock },
            refusal::State::Alive => refusal::classify(held, source).await,
        },
    })
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
