//! Transaction-level locks inside an open transaction, under a savepoint.

use super::guard::{Held, Phase};
use super::refusal;
use crate::driver::{Driver, mark_transaction_closed};
use crate::error::{Marker, is_connection_lost};
use crate::sql::Acquisition;
use crate::sql::nested::{self, Snapshot};
use crate::{Error, Request, Wait, debug};
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
    let mut sent = debug::check_token(conn, checks, depth).await;
    if sent.is_ok() {
        sent = conn.execute(&message).await;
    }
    match sent {
        Ok(()) => {
            mark_transaction_closed(conn, Some(outer));
            Ok(())
        }
        Err(source) => Err(Box::pin(release_refused(held, outer, source)).await),
    }
}

async fn release_refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    source: DieselError,
) -> Error {
    let lock = held.name.text();
    let is_ended = Marker::of(&source) == Some(Marker::TransactionEnded);
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
