//! Transaction-level locks inside an open transaction, under a savepoint.

use super::call::{Call, Phase};
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

pub(super) async fn begin<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
) -> Result<(), Error> {
    acquire(conn, call, outer, nested::begin).await
}

/// Takes the keys for the outer transaction, without a body.
pub(super) async fn lock<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
) -> Result<(), Error> {
    acquire(conn, call, outer, nested::lock).await?;
    if call.budget() == Wait::Never {
        let release = nested::release(outer, false);
        let released = conn.execute(&release).await;
        released.map_err(Error::Database)?;
    }
    call.phase = Phase::Idle;
    Ok(())
}

/// As [`lock`] for a request that does not wait: one key is asked for by a query alone, which has nothing to undo after a miss.
///
/// A pooler may not track the query's prepared statement, so where there is one for certain it goes through [`lock`], and so does what
/// the query does not take. Where there is one all the same, an error, or the answer of another statement, fails the transaction.
pub(super) async fn try_lock<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
) -> Result<(), Error> {
    let told = conn.told_process_id();
    let query = TryLock::of(&call.request).filter(|_| told.is_none_or(can_be_of_a_process));
    let Some(query) = query else {
        return Box::pin(lock(conn, call, outer)).await;
    };
    if !debug::is_open(conn).await {
        return Box::pin(lock(conn, call, outer)).await;
    }
    match call.try_lock(conn, query).await {
        Ok(None) => return Box::pin(lock(conn, call, outer)).await,
        Ok(Some(is_taken)) => {
            call.phase = Phase::Idle;
            if is_taken {
                Ok(())
            } else {
                Err(call.not_available())
            }
        }
        Err(source) => Err(Box::pin(try_failed(conn, call, source)).await),
    }
}

/// The error has failed the transaction, unless the transaction had failed before.
async fn try_failed<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    // A drop in the middle closes the connection, as in `refused`.
    call.phase = Phase::Finishing;
    let state = refusal::probe(conn, &source).await;
    // A failed transaction answers every statement with the same error.
    let had_failed = state == refusal::State::Aborted
        && matches!(conn.execute(sql::probe::ALIVE).await, Err(error) if error.to_string() == source.to_string());
    if state == refusal::State::Alive {
        // There is no transaction, though Diesel counts one; or another statement has run in it.
        conn.close(false);
    }
    call.phase = Phase::Idle;
    if had_failed {
        let lock = call.lock();
        return Error::InFailedTransaction { lock, source };
    }
    Error::Database(source)
}

/// The message that asks for the keys under a savepoint.
type Ask = fn(NonZeroU32, &Request, Snapshot) -> Acquisition;

async fn acquire<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
    ask: Ask,
) -> Result<(), Error> {
    let acquired = acquire_under(conn, call, outer, ask, Snapshot::Fresh).await;
    if let Err(Error::StaleSnapshot { .. }) = acquired {
        let held_before = Snapshot::HeldBefore;
        return Box::pin(acquire_under(conn, call, outer, ask, held_before)).await;
    }
    acquired
}

async fn acquire_under<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
    ask: Ask,
    snapshot: Snapshot,
) -> Result<(), Error> {
    let sent = call.send(conn, ask(outer, &call.request, snapshot)).await;
    match sent {
        Ok(Ok(true)) => Ok(()),
        sent => Err(Box::pin(refused(conn, call, outer, sent)).await),
    }
}

/// Undoes the savepoint, so that the outer transaction goes on.
async fn refused<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
    sent: QueryResult<QueryResult<bool>>,
) -> Error {
    let source = match sent {
        Ok(Ok(_)) => return refusal::missed(conn, call, Ok(())),
        Ok(Err(source)) | Err(source) => source,
    };
    // A drop in the middle closes the connection, so that nobody takes the open transaction for its own.
    call.phase = Phase::Finishing;
    let error = undo(conn, call, outer, source).await;
    call.phase = Phase::Idle;
    error
}

async fn undo<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
    source: DieselError,
) -> Error {
    let undo = nested::rollback(outer);
    if is_connection_lost(&source) || conn.execute(&undo).await.is_err() {
        // The transaction had already failed, and Diesel's own ROLLBACK ends it; or there is none, though Diesel counts one.
        match refusal::probe(conn, &source).await {
            refusal::State::Aborted => {
                let lock = call.lock();
                return Error::InFailedTransaction { lock, source };
            }
            refusal::State::Alive => conn.close(false),
            refusal::State::Lost => {}
        }
        return Error::Database(source);
    }
    let lock = call.lock();
    match Marker::of(&source) {
        Some(Marker::NotAvailable) => call.not_available(),
        Some(Marker::StaleSnapshot | Marker::IsolationLevel) => Error::StaleSnapshot { lock },
        _ => refusal::classify(conn, call, source).await,
    }
}

/// Keeps what the body did. The keys stay locked until the end of the outer transaction.
pub(super) async fn release<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
) -> Result<(), Error> {
    let message = nested::release(outer, call.request.max_hold.is_some());
    let depth = outer.saturating_add(1);
    if let Err(source) = debug::check_token(conn, &call.checks, depth).await {
        let is_ended = Marker::of(&source) == Some(Marker::TransactionEnded);
        return Err(Box::pin(release_refused(conn, call, outer, source, is_ended)).await);
    }
    match conn.execute(&message).await {
        Ok(()) => {
            mark_transaction_closed(conn, Some(outer));
            Ok(())
        }
        Err(source) => Err(Box::pin(release_refused(conn, call, outer, source, false)).await),
    }
}

/// With `is_ended`, a check has found that the savepoint is not the one that the call set.
async fn release_refused<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    outer: NonZeroU32,
    source: DieselError,
    is_ended: bool,
) -> Error {
    let lock = call.lock();
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
