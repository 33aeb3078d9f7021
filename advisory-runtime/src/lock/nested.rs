//! Transaction-level locks inside an open transaction, under a savepoint.

use super::guard::{Held, Phase};
use super::refusal;
use crate::driver::{Driver, mark_transaction_closed};
use crate::error::{Marker, is_connection_lost};
use crate::sql::nested::{self, Snapshot};
use crate::sql::xact::try_question;
use crate::{Error, Request, Wait, debug};
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;

pub(super) async fn begin<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    request: &Request,
) -> Result<(), Error> {
    let begun = begin_under(held, outer, request, Snapshot::Fresh).await;
    if let Err(Error::StaleSnapshot { .. }) = begun {
        return Box::pin(begin_under(held, outer, request, Snapshot::HeldBefore)).await;
    }
    begun
}

async fn begin_under<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    request: &Request,
    snapshot: Snapshot,
) -> Result<(), Error> {
    held.phase = Phase::Open;
    if request.budget() == Wait::Never {
        return Box::pin(begin_try(held, outer, request, snapshot)).await;
    }
    let message = nested::begin(outer, request, snapshot);
    let sent = held.driver().execute(&message).await;
    held.record_wait(request);
    match sent {
        Ok(()) => Ok(()),
        Err(source) => Err(Box::pin(refused(held, outer, request, source)).await),
    }
}

async fn begin_try<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    request: &Request,
    snapshot: Snapshot,
) -> Result<(), Error> {
    let message = nested::begin_try(outer, request, snapshot);
    let answer = held
        .driver()
        .execute_and_query_row(&message, &try_question(request))
        .await;
    held.record_wait(request);
    let source = match answer {
        Ok(Ok(true)) => return Ok(()),
        Ok(Ok(false)) => {
            let undone = held.driver().execute(&nested::rollback(outer)).await;
            return Err(refusal::missed(held, undone));
        }
        Ok(Err(source)) if refusal::is_unprepared(&source) => source,
        Ok(Err(source)) | Err(source) => return Err(refused(held, outer, request, source).await),
    };
    if held
        .driver()
        .execute(&nested::rollback(outer))
        .await
        .is_err()
    {
        return Err(refused(held, outer, request, source).await);
    }
    let message = nested::try_by_text(outer, request, snapshot);
    match held.driver().execute(&message).await {
        Ok(()) => Ok(()),
        Err(source) => Err(refused(held, outer, request, source).await),
    }
}

/// Undoes the savepoint, so that the transaction around the call goes on.
async fn refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
    request: &Request,
    source: DieselError,
) -> Error {
    held.phase = Phase::Idle;
    let lock = held.name.text();
    let conn = held.driver();
    if is_connection_lost(&source) || conn.execute(&nested::rollback(outer)).await.is_err() {
        // The transaction had failed before, and Diesel's own ROLLBACK ends it; or there is none, though its caller believes so.
        if refusal::probe(conn, &source).await == refusal::State::Alive {
            conn.poison();
        }
        return Error::Database(source);
    }
    match Marker::of(&source) {
        Some(Marker::NotAvailable) => Error::NotAvailable { lock },
        Some(Marker::StaleSnapshot | Marker::IsolationLevel) => Error::StaleSnapshot { lock },
        _ => refusal::classify(held, request, source).await,
    }
}

/// Keeps what the body did. The keys stay locked to the end of the transaction around the call.
pub(super) async fn release<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    outer: NonZeroU32,
) -> Result<(), Error> {
    let message = nested::release(outer, held.max_hold.is_some());
    let (conn, checks) = held.driver_and_checks();
    let depth = super::begin::inside(Some(outer));
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
        // The savepoint is gone, and with it the transaction that the caller believes to be in.
        Err(_) => {
            conn.poison();
            Error::TransactionEnded { lock }
        }
    }
}
