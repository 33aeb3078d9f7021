//! Finds out why the server refused an acquisition.
//!
//! Diesel hides the SQLSTATE, and messages are translated. So the reason is derived from the form
//! of the error, the state of the session, and the time.

use crate::driver::Driver;
use crate::error::{
    is_connection_lost, is_deadlock, is_interrupted, is_lock_table_full, is_lock_timeout,
    is_of_savepoint, is_outside_transaction, is_same_answer,
};
use crate::lock::call::{Call, Phase};
use crate::{Error, Wait, sql};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::lock) enum SessionState {
    /// It runs statements.
    Alive,
    /// A transaction is open that the error has failed.
    Aborted,
    /// A transaction is open that had failed before: the error is the one that refuses every
    /// statement in it (25P02).
    HadFailed,
    /// The connection is lost, or its state cannot be found out. It is marked as broken.
    Lost,
}

/// Finds out the state of the session after an error. Each answer but [`SessionState::Lost`] is one
/// that the server gives in no other state: a cancel request or a timeout can interrupt the
/// questions too, and says nothing.
pub(in crate::lock) async fn probe<D: Driver>(conn: &mut D, source: &DieselError) -> SessionState {
    for _ in 0..TRIES {
        if is_connection_lost(source) {
            break;
        }
        let Err(refused) = conn.execute(sql::probe::ALIVE).await else {
            return SessionState::Alive;
        };
        // The server reports the end of a session (57P01) before it closes the connection, so the
        // question after that finds it closed.
        match conn.execute(sql::probe::NO_SAVEPOINT).await {
            Err(error) if is_of_savepoint(&error, "advisory_none") => {
                return if is_same_answer(&refused, source) {
                    SessionState::HadFailed
                } else {
                    SessionState::Aborted
                };
            }
            Err(error) if is_outside_transaction(&error) => return SessionState::Alive,
            Err(error) if is_connection_lost(&error) => break,
            _ => {}
        }
    }
    if is_connection_lost(source) {
        conn.status().set_in_error();
    } else {
        conn.close(false);
    }
    SessionState::Lost
}

/// The maximum number of questions. Each cancel request interrupts one.
const TRIES: usize = 16;

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

/// The error of an acquisition that was not a wait, or that ended for another reason than its wait.
pub(super) fn database(call: &Call, source: DieselError) -> Error {
    if is_lock_table_full(&source) {
        let lock = call.lock();
        return Error::LockTableFull { lock, source };
    }
    Error::Database(source)
}

/// Classifies the error of a wait that leaves the session usable.
///
/// The server's text says that a wait has timed out, if that text is in English. In another
/// language it has timed out if it lasted as long as its budget by this process's clock, with a
/// tolerance. Other interruptions are one variant, since Diesel does not distinguish a cancel
/// request from `statement_timeout`.
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
        _ if !is_interrupted(&source) => return database(call, source),
        Wait::Never => return Error::Database(source),
        wait => wait,
    };
    let has_timed_out = match (is_lock_timeout(&source), budget) {
        (Some(has_timed_out), _) => has_timed_out,
        (None, Wait::For(budget)) => call.has_waited(budget),
        (None, Wait::Session) => {
            let lock_timeout = lock_timeout(conn).await;
            lock_timeout.is_some_and(|budget| call.has_waited(budget))
        }
        (None, _) => false,
    };
    if has_timed_out {
        return call.timed_out(Some(source));
    }
    Error::Cancelled { lock, source }
}

async fn lock_timeout<D: Driver>(conn: &mut D) -> Option<Duration> {
    let answer = conn.query_text(sql::probe::LOCK_TIMEOUT).await.ok()??;
    let milliseconds = answer.parse().ok().filter(|milliseconds| *milliseconds > 0);
    milliseconds.map(Duration::from_millis)
}
