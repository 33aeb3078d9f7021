//! Ends a locked call, and finds the reason if it cannot end normally.

use super::call::{Call, CallPhase, Way, inside};
use super::way;
use crate::driver::{Driver, depth, mark_transaction_closed};
use crate::observe::Outcome;
use crate::{Error, error};
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

/// Commits if the body was `Ok`, otherwise rolls back; releases session-level locks. After a body's
/// error it always returns `Ok`, so that the body's error is never lost.
pub(super) async fn finish<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    is_ok: bool,
) -> Result<(), Error> {
    call.checks.warn_if_idle(call.telemetry.as_ref());
    let limit = call.end_limit(is_ok).unwrap_or(Duration::MAX);
    let answer = D::timeout(limit, pin!(finish_inner(conn, call, is_ok))).await;
    let result = match answer {
        Some(result) => result,
        None => close_unanswered(conn, call, is_ok, limit).await,
    };
    if let Some(mut telemetry) = call.telemetry.take() {
        telemetry.record_end(match &result {
            Ok(()) if is_ok => Ok(Outcome::Done),
            Ok(()) => Ok(Outcome::Failed),
            Err(error) => Err(error),
        });
    }
    result
}

async fn finish_inner<D: Driver>(conn: &mut D, call: &mut Call, is_ok: bool) -> Result<(), Error> {
    let outer = call.outer;
    let expected_depth = match call.way {
        Way::Session => outer,
        _ => Some(inside(outer)),
    };
    let actual_depth = depth(conn);
    if !matches!(actual_depth, Ok(actual_depth) if actual_depth == expected_depth) {
        // The body left a transaction of Diesel's open, or ended one that it did not begin, or a
        // locked call inside it was dropped.
        let connection_error = if actual_depth.is_err() {
            let connection_error = conn.lost().await;
            Box::pin(call.close(conn)).await;
            connection_error
        } else {
            Box::pin(undo_or_close(conn, call, Duration::MAX)).await;
            None
        };
        return if is_ok {
            Err(unbalanced(
                call,
                actual_depth,
                expected_depth,
                connection_error,
            ))
        } else {
            Ok(())
        };
    }
    let is_late = is_ok && call.has_outlasted_max_hold();
    call.phase = if is_ok && !is_late {
        CallPhase::Committing
    } else {
        CallPhase::Finishing
    };
    let outcome = way::finish(conn, call, is_ok && !is_late).await;
    call.phase = CallPhase::Idle;
    if is_late {
        return Err(call.hold_exceeded());
    }
    if is_ok { outcome } else { Ok(()) }
}

/// Closes the connection of a call without an answer to its end in time. Only a commit may have
/// happened.
async fn close_unanswered<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    is_ok: bool,
    limit: Duration,
) -> Result<(), Error> {
    let is_commit =
        call.phase == CallPhase::Committing && matches!(call.way, Way::Transaction | Way::Strict);
    call.close(conn).await;
    if !is_ok {
        return Ok(());
    }
    Err(if is_commit {
        let (lock, source) = (call.lock_name(), error::no_answer(limit));
        Error::CommitUnknown { lock, source }
    } else {
        call.hold_exceeded()
    })
}

#[cfg(feature = "diesel-async")]
pub(super) async fn exceed<D: Driver>(conn: &mut D, call: &mut Call) -> Error {
    call.checks.warn_if_idle(call.telemetry.as_ref());
    undo_or_close(conn, call, UNDOING).await;
    let error = call.hold_exceeded();
    if let Some(mut telemetry) = call.telemetry.take() {
        telemetry.record_end(Err(&error));
    }
    error
}

/// The time to wait for a dropped body's statement before the connection is closed.
#[cfg(feature = "diesel-async")]
const UNDOING: Duration = Duration::from_millis(100);

/// Rolls back what the body left open, releases the locks, and leaves the connection as it was
/// before the call. If that takes too long or fails, the connection is closed.
async fn undo_or_close<D: Driver>(conn: &mut D, call: &mut Call, limit: Duration) {
    let outer = call.outer;
    let message = way::undo_message(call);
    if let Some(Ok(())) = D::timeout(limit, conn.execute(&message)).await {
        call.phase = CallPhase::Idle;
        mark_transaction_closed(conn, outer);
    } else {
        call.close(conn).await;
    }
}

fn unbalanced(
    call: &Call,
    actual_depth: Result<Option<NonZeroU32>, DieselError>,
    expected_depth: Option<NonZeroU32>,
    connection_error: Option<DieselError>,
) -> Error {
    let lock = call.lock_name();
    match (actual_depth, connection_error) {
        (_, Some(_)) if call.has_outlasted_max_hold() => call.hold_exceeded(),
        // The body's own commits stay.
        (Err(source), connection_error) if call.way == Way::Session => {
            let source = Some(connection_error.unwrap_or(source));
            Error::LockLost { lock, source }
        }
        (_, Some(source)) if call.outer.is_none() => Error::CommitUnknown { lock, source },
        (_, Some(source)) => Error::Database(source),
        (Err(source), None) => Error::RolledBack { lock, source },
        (Ok(actual_depth), None) if actual_depth > expected_depth => {
            let source = DieselError::BrokenTransactionManager;
            Error::RolledBack { lock, source }
        }
        (Ok(_), None) => Error::TransactionEnded { lock },
    }
}
