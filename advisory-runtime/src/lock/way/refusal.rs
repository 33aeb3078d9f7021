//! The reason why the server refused an acquisition: derived from the form of the error, the state
//! of the session, and the time, since Diesel hides the SQLSTATE.

use crate::driver::Driver;
use crate::error::{
    is_connection_lost, is_deadlock, is_interrupted, is_lock_table_full, is_lock_timeout,
    is_of_savepoint, is_outside_transaction, is_same_answer,
};
use crate::lock::call::{Call, CallPhase};
use crate::{Error, Wait, sql};
use diesel::result::Error as DieselError;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::lock) enum SessionState {
    /// It runs statements.
    Alive,
    /// The error has failed an open transaction.
    Aborted,
    /// An open transaction had failed before. The error is the refusal of every statement in it
    /// (25P02).
    HadFailed,
    /// The connection is lost, or its state cannot be found out. It is marked as broken.
    Lost,
}

/// Finds out the state of the session after an error. Except for [`SessionState::Lost`], the server
/// gives each answer in one state only. A cancel request or a timeout can interrupt the queries
/// too, and says nothing about the state.
pub(in crate::lock) async fn probe<D: Driver>(conn: &mut D, source: &DieselError) -> SessionState {
    if is_connection_lost(source) {
        conn.status().set_in_error();
        return SessionState::Lost;
    }
    for _ in 0..PROBE_TRIES {
        let Err(refused) = conn.execute(sql::probe::ALIVE).await else {
            return SessionState::Alive;
        };
        // The server reports the end of a session (57P01) before it closes the connection. The next
        // query finds it closed.
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
    conn.close(false);
    SessionState::Lost
}

/// The maximum number of rounds of queries. Each cancel request interrupts one query.
const PROBE_TRIES: usize = 16;

/// The error of a try that found the lock held and was undone.
pub(super) fn missed(call: &mut Call) -> Error {
    call.phase = CallPhase::Idle;
    call.not_available()
}

/// The error of an acquisition that did not wait, or did not fail because of its wait.
pub(super) fn database(call: &Call, source: DieselError) -> Error {
    if is_lock_table_full(&source) {
        let lock = call.lock_name();
        return Error::LockTableFull { lock, source };
    }
    Error::Database(source)
}

/// Classifies the error of a wait that leaves the session usable.
///
/// An English server says that a wait has timed out. In another language, a wait counts as timed
/// out if it lasted as long as its budget by this process's clock, with a tolerance. Other
/// interruptions are one variant, since Diesel does not distinguish a cancel request from
/// `statement_timeout`.
pub(in crate::lock) async fn classify<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    source: DieselError,
) -> Error {
    let lock = call.lock_name();
    if is_deadlock(&source) {
        return Error::Deadlock { lock, source };
    }
    let budget = match call.request.budget() {
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
