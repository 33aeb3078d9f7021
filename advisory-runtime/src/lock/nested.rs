//! Transaction-level locks inside an open transaction, under a savepoint.

use super::guard::{Held, Phase};
use super::refusal;
use crate::driver::{Driver, can_be_of_a_process, mark_transaction_closed};
use crate::error::{Marker, is_connection_lost};
use crate::sql::Acquisition;
use crate::sql::nested::{self, Snapshot};
use crate::sql::try_lock::TryLock;
use crate::{Error, Request, Wait, debug, sql};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;

pub(super) async fn begin<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    request: &Request,
) -> Result<(), Error> {
    acquire(held, outer, request, nested::begin).await
}

/// Takes the keys for the outer transaction, without a body.
pub(super) async fn lock<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    request: &Request,
) -> Result<(), Error> {
    acquire(held, outer, request, nested::lock).await?;
    if held.budget == Wait::Never {
        let release = nested::release(outer, false);
        let released = held.driver().execute(&release).await;
        released.map_err(Error::Database)?;
    }
    held.phase = Phase::Idle;
    Ok(())
}

/// As [`lock`] for a request that does not wait: one key is asked for by a query alone, which has nothing to undo after a miss.
///
/// A pooler may not track the query's prepared statement, so where there is one for certain it goes through [`lock`], and so does what
/// the query does not take. Where there is one all the same, an error, or the answer of another statement, fails the transaction.
pub(super) async fn try_lock<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    request: &Request,
) -> Result<(), Error> {
    let told = held.driver().told_process_id();
    let query = TryLock::of(request).filter(|_| told.is_none_or(can_be_of_a_process));
    let Some(query) = query else {
        return Box::pin(lock(held, outer, request)).await;
    };
    if !debug::is_open(held.driver()).await {
        return Box::pin(lock(held, outer, request)).await;
    }
    match held.try_lock(query).await {
        Ok(None) => return Box::pin(lock(held, outer, request)).await,
        Ok(Some(is_taken)) => {
            held.phase = Phase::Idle;
            if is_taken {
                Ok(())
            } else {
                Err(held.not_available())
            }
        }
        Err(source) => Err(Box::pin(try_failed(held, source)).await),
    }
}

/// The error has failed the transaction, unless the transaction had failed before.
async fn try_failed<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>, source: DieselError) -> Error {
    // A drop in the middle closes the connection, as in `refused`.
    held.phase = Phase::Finishing;
    let conn = held.driver();
    let state = refusal::probe(conn, &source).await;
    // A failed transaction answers every statement with the same error.
    let had_failed = state == refusal::State::Aborted
        && matches!(conn.execute(sql::probe::ALIVE).await, Err(error) if error.to_string() == source.to_string());
    if state == refusal::State::Alive {
        // Diesel counts a transaction that the server does not have, or another statement has run in it.
        conn.close(false);
    }
    held.phase = Phase::Idle;
    if had_failed {
        let lock = held.name.text();
        return Error::InFailedTransaction { lock, source };
    }
    Error::Database(source)
}

/// The message that asks for the keys under a savepoint.
type Ask = fn(NonZeroU32, &Request, Snapshot) -> Acquisition;

async fn acquire<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    request: &Request,
    ask: Ask,
) -> Result<(), Error> {
    let acquired = acquire_under(held, outer, request, ask, Snapshot::Fresh).await;
    if let Err(Error::StaleSnapshot { .. }) = acquired {
        let held_before = Snapshot::HeldBefore;
        return Box::pin(acquire_under(held, outer, request, ask, held_before)).await;
    }
    acquired
}

async fn acquire_under<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    request: &Request,
    ask: Ask,
    snapshot: Snapshot,
) -> Result<(), Error> {
    let sent = held.send(ask(outer, request, snapshot)).await;
    match sent {
        Ok(Ok(true)) => Ok(()),
        sent => Err(Box::pin(refused(held, outer, sent)).await),
    }
}

/// Undoes the savepoint, so that the outer transaction goes on.
async fn refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    sent: QueryResult<QueryResult<bool>>,
) -> Error {
    let source = match sent {
        Ok(Ok(_)) => return refusal::missed(held, Ok(())),
        Ok(Err(source)) | Err(source) => source,
    };
    // A drop in the middle closes the connection, so that nobody takes the open transaction for its own.
    held.phase = Phase::Finishing;
    let error = undo(held, outer, source).await;
    held.phase = Phase::Idle;
    error
}

async fn undo<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    source: DieselError,
) -> Error {
    let conn = held.driver();
    let undo = nested::rollback(outer);
    if is_connection_lost(&source) || conn.execute(&undo).await.is_err() {
        // The transaction had already failed, and Diesel's own ROLLBACK ends it; or there is none, though Diesel counts one.
        match refusal::probe(conn, &source).await {
            refusal::State::Aborted => {
                let lock = held.name.text();
                return Error::InFailedTransaction { lock, source };
            }
            refusal::State::Alive => conn.close(false),
            refusal::State::Lost => {}
        }
        return Error::Database(source);
    }
    let lock = held.name.text();
    match Marker::of(&source) {
        Some(Marker::NotAvailable) => held.not_available(),
        Some(Marker::StaleSnapshot | Marker::IsolationLevel) => Error::StaleSnapshot { lock },
        _ => refusal::classify(held, source).await,
    }
}

/// Keeps what the body did. The keys stay locked until the end of the outer transaction.
pub(super) async fn release<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
) -> Result<(), Error> {
    let message = nested::release(outer, held.max_hold.is_some());
    let (conn, checks) = held.driver_and_checks();
    let depth = outer.saturating_add(1);
    if let Err(source) = debug::check_token(conn, checks, depth).await {
        let is_ended = Marker::of(&source) == Some(Marker::TransactionEnded);
        return Err(Box::pin(release_refused(held, outer, source, is_ended)).await);
    }
    match conn.execute(&message).await {
        Ok(()) => {
            mark_transaction_closed(conn, Some(outer));
            Ok(())
        }
        Err(source) => Err(Box::pin(release_refused(held, outer, source, false)).await),
    }
}

/// With `is_ended`, a check has found that the savepoint is not the one that the call set.
async fn release_refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    source: DieselError,
    is_ended: bool,
) -> Error {
    let lock = held.name.text();
    let conn = held.driver();
    match conn.execute(&nested::rollback(outer)).await {
        Ok(()) => {
            mark_transaction_closed(conn, Some(outer));
            if is_ended {
                Error::TransactionEnded { lock }
            } else {
                Error::RolledBack { lock, source }
            }
        }
        Err(undone) if is_connection_lost(&undone) => {
            conn.status().set_in_error();
            Error::Database(source)
        }
        // The savepoint is gone, and so is the transaction that Diesel counts.
        Err(_) => {
            conn.close(false);
            Error::TransactionEnded { lock }
        }
    }
}
