//! The ways of holding locks: in a transaction of the call's own, at READ COMMITTED or stricter;
//! under a savepoint; for the session.
//!
//! Each has a file with its SQL, its end, and the meaning of a refusal. They share `message`, which
//! builds the SQL, and `acquire_sql`, which sends it.

mod acquire_sql;
mod client_check;
mod message;
pub(super) mod refusal;
mod savepoint;
pub(super) mod session;
mod strict;
mod transaction;

use super::call::{Call, Way};
use crate::driver::{Driver, mark_transaction_closed};
use crate::{Error, pooler, sql};
use std::num::NonZeroU32;

/// Acquires the locks, and tries again if the server refuses a setting of `max_hold`, or if a
/// pooler turns out to be in session mode.
pub(super) async fn acquire<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    if matches!(call.way, Way::Session | Way::Strict) {
        call.process = pooler::own_process(conn);
    }
    let acquired = acquire_once(conn, call).await;
    if let Err(error) = &acquired
        && (client_check::record_refusal(call, error)
            || Box::pin(session::may_repeat(conn, call, error)).await)
    {
        return Box::pin(acquire_once(conn, call)).await;
    }
    acquired
}

async fn acquire_once<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    // The rarer ways are boxed, so that a call's future is only as large as the common ones need.
    match call.way {
        Way::Transaction => transaction::begin(conn, call).await,
        Way::Strict => Box::pin(strict::begin(conn, call)).await,
        Way::Savepoint(outer) => savepoint::begin(conn, call, outer).await,
        Way::Within(outer) => savepoint::lock(conn, call, outer).await,
        Way::Try(outer) => savepoint::try_lock(conn, call, outer).await,
        Way::Session => session::acquire(conn, call).await,
    }
}

/// Keeps or undoes the body's changes, and releases the locks. The outcome of a rollback does not
/// matter.
pub(super) async fn finish<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    is_ok: bool,
) -> Result<(), Error> {
    match call.way {
        Way::Session => session::release(conn, call).await,
        _ if !is_ok => {
            roll_back_or_close(conn, call.outer).await;
            Ok(())
        }
        Way::Transaction | Way::Strict => transaction::commit(conn, call).await,
        Way::Savepoint(outer) => savepoint::release(conn, call, outer).await,
        // Without a body there is nothing to end.
        Way::Within(_) | Way::Try(_) => Ok(()),
    }
}

/// Undoes the body. If that fails, the caller's transaction is in an unknown state, so the
/// connection is closed.
async fn roll_back_or_close<D: Driver>(conn: &mut D, outer: Option<NonZeroU32>) {
    let undone = match outer {
        None => conn.execute(sql::ROLLBACK).await,
        Some(outer) => conn.execute(&sql::rollback_to_savepoint(outer)).await,
    };
    match undone {
        Ok(()) => mark_transaction_closed(conn, outer),
        Err(_) => conn.close(false),
    }
}

/// SQL that rolls back what the body left open, and releases the locks. Those of dropped calls
/// inside it come first, so that each call restores the settings that it found.
pub(super) fn undo_message(call: &Call) -> String {
    let mut statements = match (call.way, call.outer) {
        (Way::Session, Some(_)) => Vec::new(),
        (_, Some(outer)) => vec![sql::rollback_to_savepoint(outer)],
        (_, None) => vec![sql::ROLLBACK.to_owned()],
    };
    statements.extend(call.dropped.take());
    if call.way == Way::Session {
        statements.push(call.release_locks_sql());
    }
    statements.join(";")
}
