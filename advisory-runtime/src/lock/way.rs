//! The ways of holding locks: in a transaction of the call's own, at READ COMMITTED or stricter; under a savepoint; for the session.
//!
//! Each has a file: the SQL that it sends, how it ends, and how a refusal is read. They share `message`, the builder, and `acquire_sql`,
//! which sends what acquires.

mod acquire_sql;
mod client_check;
mod mark;
mod message;
pub(super) mod refusal;
mod savepoint;
pub(super) mod session;
mod strict;
mod transaction;

use super::call::Call;
use crate::driver::{Driver, mark_transaction_closed};
use crate::{Error, sql};
use std::num::NonZeroU32;

/// A way of holding locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A transaction at READ COMMITTED, which the call opens and ends.
    Transaction,
    /// One at a stricter level.
    Strict,
    /// A savepoint in the open transaction of this depth.
    Savepoint(NonZeroU32),
    /// The open transaction of this depth itself, without a body.
    Within(NonZeroU32),
    /// The same for a request that does not wait.
    Try(NonZeroU32),
    /// The session.
    Session,
}

impl Way {
    /// The value of the attribute's argument `scope`.
    pub(super) const fn scope(self) -> &'static str {
        match self {
            Self::Session => "session",
            _ => "xact",
        }
    }
}

/// Sends what acquires the locks, once; again for a server that refuses a setting of `max_hold`.
pub(super) async fn acquire<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    match acquire_once(conn, call).await {
        Err(error) if client_check::is_refused(call, &error) => {
            Box::pin(acquire_once(conn, call)).await
        }
        acquired => acquired,
    }
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

/// Keeps what the body did and releases the locks, or undoes it. After a body's error the outcome is of no interest.
pub(super) async fn finish<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    is_ok: bool,
) -> Result<(), Error> {
    match call.way {
        Way::Session => session::release(conn, call).await,
        _ if !is_ok => {
            roll_back(conn, call.outer).await;
            Ok(())
        }
        Way::Transaction | Way::Strict => transaction::commit(conn, call).await,
        Way::Savepoint(outer) => savepoint::release(conn, call, outer).await,
        // Without a body there is nothing to end.
        Way::Within(_) | Way::Try(_) => Ok(()),
    }
}

/// Undoes the body. If that fails, the caller's transaction is in an unknown state, so the connection is closed.
async fn roll_back<D: Driver>(conn: &mut D, outer: Option<NonZeroU32>) {
    let undone = match outer {
        None => conn.execute(sql::ROLLBACK).await,
        Some(outer) => conn.execute(&sql::rollback_to_savepoint(outer)).await,
    };
    match undone {
        Ok(()) => mark_transaction_closed(conn, outer),
        Err(_) => conn.close(false),
    }
}

/// SQL that rolls back what the body left open, and releases the locks.
pub(super) fn undo_message(call: &Call) -> String {
    match (call.way, call.outer) {
        (Way::Session, None) => format!("{};{}", sql::ROLLBACK, call.release_message()),
        (Way::Session, Some(_)) => call.release_message(),
        (_, Some(outer)) => sql::rollback_to_savepoint(outer),
        (_, None) => sql::ROLLBACK.to_owned(),
    }
}
