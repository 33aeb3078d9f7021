//! Finds out why the server refused an acquisition.
//!
//! Diesel hides the SQLSTATE, and messages are translated. So the reason is derived from the form of the error, the state of the
//! session, and the time.

use crate::driver::Driver;
use crate::error::{is_connection_lost, is_deadlock, is_interrupted};
use crate::lock::call::{Call, Phase};
use crate::{Error, Wait, sql};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::time::Duration;

/// The state of the session after an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::lock) enum State {
    /// It runs statements.
    Alive,
    /// A failed transaction is open.
    Aborted,
    /// The connection is lost, and is marked as broken.
    Lost,
}

pub(in crate::lock) async fn probe<D: Driver>(conn: &mut D, source: &DieselError) -> State {
    let mut probed = Ok(());
    if !is_connection_lost(source) {
        probed = conn.execute(sql::probe::ALIVE).await;
        if probed.is_err() {
            // The server reports the end of a session (57P01) before it closes the connection. The second probe tells that from a failed
            // transaction.
            probed = conn.execute(sql::probe::ALIVE).await;
        }
    }
    match probed {
        Ok(()) if !is_connection_lost(source) => State::Alive,
        Err(error) if !is_connection_lost(&error) => State::Aborted,
        _ => {
            conn.status().set_in_error();
            State::Lost
        }
    }
}

/// The error of a try that found the lock held and was undone.
pub(in crate::lock) fn missed<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    undone: QueryResult<()>,
) -> Error {
    match undone {
        Ok(()) => {
            call.phase = Phase::Idle;
            call.not_available()
        }
        Err(error) => {
            call.abandon(conn);
            Error::Database(error)
        }
    }
}

/// Classifies the error of a wait whose session goes on.
///
/// A wait that lasted as long as its budget has timed out. Other interruptions are one variant, since Diesel does not distinguish a
/// cancel request from `statement_timeout`.
pub(in crate::lock) async fn classify<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    source: DieselError,
) -> Error {
    let lock = call.lock();
    if is_deadlock(&source) {
        return Error::Deadlock { lock, source };
    }
    let budget = match call.budget() {
        _ if !is_interrupted(&source) => return Error::Database(source),
        Wait::Never => return Error::Database(source),
        Wait::For(budget) => Some(budget),
        Wait::Session => lock_timeout(conn).await,
        Wait::Forever => None,
    };
    let waited = call.waited();
    if budget.is_some_and(|budget| call.has_waited(budget)) {
        let source = Some(source);
        return Error::TimedOut {
            lock,
            busy: call.busy(),
            waited,
            source,
        };
    }
    Error::Cancelled { lock, source }
}

/// The session's own `lock_timeout`.
async fn lock_timeout<D: Driver>(conn: &mut D) -> Option<Duration> {
    let answer = conn.query_text(sql::probe::LOCK_TIMEOUT).await.ok()??;
    let milliseconds = answer.parse().ok().filter(|milliseconds| *milliseconds > 0);
    milliseconds.map(Duration::from_millis)
}
