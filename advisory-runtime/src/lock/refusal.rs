//! What the server's refusal of an acquisition means.
//!
//! It is read off the form of the error, the session's state, and the time, because Diesel hides the SQLSTATE and messages are
//! translated.

use super::guard::{Held, Phase};
use crate::driver::Driver;
use crate::error::{is_connection_lost, is_deadlock, is_interrupted};
use crate::{Error, Wait, sql};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::time::Duration;

/// The session behind an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It runs statements.
    Alive,
    /// A failed transaction is open.
    Aborted,
    /// The connection is gone, and is marked so.
    Lost,
}

pub(super) async fn probe<D: Driver>(conn: &mut D, source: &DieselError) -> State {
    let mut probed = Ok(());
    if !is_connection_lost(source) {
        probed = conn.execute(sql::probe::ALIVE).await;
        if probed.is_err() {
            // The server tells of a session's end (57P01) before it closes the connection: that is no failed transaction.
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

/// A try found the lock held, and was undone.
pub(super) fn missed<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    undone: QueryResult<()>,
) -> Error {
    match undone {
        Ok(()) => {
            held.phase = Phase::Idle;
            held.not_available()
        }
        Err(error) => {
            held.abandon();
            Error::Database(error)
        }
    }
}

/// Names the error of a wait whose session goes on.
///
/// A wait as long as its budget was ended by that. Any other end is one variant, since Diesel does not tell a cancel request from
/// `statement_timeout`.
pub(super) async fn classify<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    source: DieselError,
) -> Error {
    let lock = held.name.text();
    if is_deadlock(&source) {
        return Error::Deadlock { lock, source };
    }
    let budget = match held.budget {
        _ if !is_interrupted(&source) => return Error::Database(source),
        Wait::Never => return Error::Database(source),
        Wait::For(budget) => Some(budget),
        Wait::Session => lock_timeout(held.driver()).await,
        Wait::Forever => None,
    };
    let waited = held.waited;
    if budget.is_some_and(|budget| waited.saturating_sub(held.queued) >= budget) {
        let source = Some(source);
        return Error::TimedOut {
            lock,
            busy: held.busy(),
            waited,
            source,
        };
    }
    Error::Cancelled { lock, source }
}

/// The session's own.
async fn lock_timeout<D: Driver>(conn: &mut D) -> Option<Duration> {
    let answer = conn.query_text(sql::probe::LOCK_TIMEOUT).await.ok()??;
    let milliseconds = answer.parse().ok().filter(|milliseconds| *milliseconds > 0);
    milliseconds.map(Duration::from_millis)
}
