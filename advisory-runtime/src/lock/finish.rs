//! Ends a locked call, and finds out what happened if it cannot end normally.

use super::guard::{Held, Phase, Scope, inside};
use super::{nested, session, xact};
use crate::driver::{Driver, depth, mark_transaction_closed};
use crate::observe::Outcome;
use crate::{Error, sql};
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;
use std::time::Duration;

/// Commits if the body was `Ok`, otherwise rolls back; releases session-level locks. After a body's error it always returns `Ok`, so
/// that the body's error is never lost.
pub(crate) async fn finish<O: ?Sized, D: Driver>(
    mut held: Held<'_, O, D>,
    is_ok: bool,
) -> Result<(), Error> {
    let telemetry = held.telemetry.take();
    held.checks.warn_if_idle(telemetry.as_ref());
    let ended = finish_inner(held, is_ok).await;
    if let Some(mut telemetry) = telemetry {
        telemetry.record_end(match &ended {
            Ok(()) if is_ok => Ok(Outcome::Done),
            Ok(()) => Ok(Outcome::Failed),
            Err(error) => Err(error),
        });
    }
    ended
}

async fn finish_inner<O: ?Sized, D: Driver>(
    mut held: Held<'_, O, D>,
    is_ok: bool,
) -> Result<(), Error> {
    let outer = held.outer;
    let expected = match held.scope {
        Scope::Xact => Some(inside(outer)),
        Scope::Session => outer,
    };
    let now = depth(held.driver());
    if !matches!(now, Ok(now) if now == expected) {
        // The body began a transaction through Diesel without ending it, or ended one that it did not begin, or a locked call inside
        // it was dropped.
        let lost = if now.is_err() {
            let lost = held.driver().lost().await;
            Box::pin(held.close()).await;
            lost
        } else {
            Box::pin(undo(&mut held, None)).await;
            None
        };
        return if is_ok {
            Err(unbalanced(&held, now, expected, lost))
        } else {
            Ok(())
        };
    }
    let is_over = is_ok && held.is_over();
    held.phase = Phase::Finishing;
    let outcome = match (held.scope, outer) {
        (Scope::Session, _) => session::release(&mut held).await,
        _ if !is_ok || is_over => {
            roll_back(held.driver(), outer).await;
            Ok(())
        }
        (Scope::Xact, None) => xact::commit(&mut held).await,
        (Scope::Xact, Some(outer)) => {
            let released = nested::release(&mut held, outer).await;
            if released.is_ok() {
                held.checks.locks.leave(outer);
            }
            released
        }
    };
    held.phase = Phase::Idle;
    if is_over {
        return Err(hold_exceeded(&held));
    }
    if is_ok { outcome } else { Ok(()) }
}

/// Ends a call whose body was dropped because of `max_hold`.
#[cfg(feature = "diesel-async")]
pub(crate) async fn exceed<O: ?Sized, D: Driver>(mut held: Held<'_, O, D>) -> Error {
    held.checks.warn_if_idle(held.telemetry.as_ref());
    undo(&mut held, Some(UNDOING)).await;
    let error = hold_exceeded(&held);
    if let Some(mut telemetry) = held.telemetry.take() {
        telemetry.record_end(Err(&error));
    }
    error
}

/// How long to wait for a dropped body's statement before the connection is closed.
#[cfg(feature = "diesel-async")]
const UNDOING: Duration = Duration::from_millis(100);

/// Rolls back what the body left open, releases the locks, and leaves the connection as it was before the call. If that takes too
/// long or fails, the connection is closed.
async fn undo<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>, limit: Option<Duration>) {
    let outer = held.outer;
    let message = match (held.scope, outer) {
        (Scope::Xact, Some(outer)) => sql::nested::rollback(outer),
        (Scope::Xact, None) => sql::ROLLBACK.to_owned(),
        (Scope::Session, None) => format!("{};{}", sql::ROLLBACK, held.release_message()),
        (Scope::Session, Some(_)) => held.release_message(),
    };
    let undone = match limit {
        Some(limit) => held.driver().execute_within(limit, &message).await,
        None => Some(held.driver().execute(&message).await),
    };
    if let Some(Ok(())) = undone {
        held.phase = Phase::Idle;
        mark_transaction_closed(held.driver(), outer);
    } else {
        held.close().await;
    }
}

fn hold_exceeded<O: ?Sized, D: Driver>(held: &Held<'_, O, D>) -> Error {
    Error::HoldExceeded {
        lock: held.name.text(),
        max_hold: held.max_hold.unwrap_or_default(),
    }
}

fn unbalanced<O: ?Sized, D: Driver>(
    held: &Held<'_, O, D>,
    now: Result<Option<NonZeroU32>, DieselError>,
    expected: Option<NonZeroU32>,
    lost: Option<DieselError>,
) -> Error {
    let lock = held.name.text();
    match (now, lost) {
        (_, Some(_)) if held.is_over() => hold_exceeded(held),
        // What the body has committed stays committed.
        (Err(source), lost) if held.scope == Scope::Session => {
            let source = Some(lost.unwrap_or(source));
            Error::LockLost { lock, source }
        }
        (_, Some(source)) if held.outer.is_none() => Error::CommitUnknown { lock, source },
        (_, Some(source)) => Error::Database(source),
        (Err(source), None) => Error::RolledBack { lock, source },
        (Ok(now), None) if now > expected => {
            let source = DieselError::BrokenTransactionManager;
            Error::RolledBack { lock, source }
        }
        (Ok(_), None) => Error::TransactionEnded { lock },
    }
}

/// Undoes the body. If that fails, the caller's transaction is in an unknown state, so the connection is closed. The caller returns
/// the body's own error.
async fn roll_back<D: Driver>(conn: &mut D, outer: Option<NonZeroU32>) {
    let undone = match outer {
        None => conn.execute(sql::ROLLBACK).await,
        Some(outer) => conn.execute(&sql::nested::rollback(outer)).await,
    };
    match undone {
        Ok(()) => mark_transaction_closed(conn, outer),
        Err(_) => conn.close(false),
    }
}
