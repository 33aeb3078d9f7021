//! What the server's refusal of a begin means, and what it leaves.
//!
//! Read off its form and off the session's state, because Diesel hides the SQLSTATE and messages are translated.

use crate::finish::{doom, end_session};
use crate::guard::{Held, Phase, Scope};
use crate::link::Link;
use crate::sql::{self, Around, Taken};
use crate::{Error, Request, Wait, error};
use diesel::result::Error as DieselError;
use std::time::Duration;

/// A refused message: what it means, and what the session is left in.
pub(crate) struct Refused {
    pub(crate) error: Error,
    /// The message was refused before anything was asked for.
    is_by_check: bool,
    /// A wait was ended, so that its lock can have been granted all the same.
    was_waiting: bool,
}

impl Refused {
    pub(crate) fn error(self) -> Error {
        self.error
    }

    /// Whether a statement was not there that the session was believed to have prepared, or was there already.
    pub(crate) fn is_by_name(&self) -> bool {
        matches!(&self.error, Error::Database(source) if error::has_marker(source, sql::PREPARED))
    }
}

/// Leaves the refusal behind, and tells what it means.
pub(crate) async fn refused<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    request: &Request,
    source: DieselError,
) -> Refused {
    let is_session = held.scope == Scope::Session || held.is_handed_over;
    let state = leave_refused(held, is_session, &source).await;
    if !is_session || state == State::Broken {
        held.phase = Phase::Idle;
    }
    let was_waiting = error::is_interrupted(&source) || error::is_deadlock(&source);
    let lock = held.lock.text();
    let is_by_check = [
        sql::STALE,
        sql::STANDBY,
        sql::POOLED,
        sql::FOREIGN,
        sql::PREPARED,
    ]
    .iter()
    .any(|marker| error::has_marker(&source, marker));
    let error = if state == State::Foreign || error::has_marker(&source, sql::FOREIGN) {
        Error::ForeignTransaction { lock }
    } else if error::has_marker(&source, sql::STALE) {
        Error::StaleSnapshot { lock }
    } else if error::has_marker(&source, sql::STANDBY) {
        Error::Standby { lock }
    } else if error::has_marker(&source, sql::POOLED) {
        Error::PooledSession { lock }
    } else if error::has_marker(&source, sql::PREPARED) {
        // In its form it is like a wait's end.
        Error::Database(source)
    } else if error::is_deadlock(&source) {
        Error::Deadlock { lock, source }
    } else if state != State::Failed && error::is_interrupted(&source) {
        interrupted(held, request, source).await
    } else {
        Error::Database(source)
    };
    Refused {
        error,
        is_by_check,
        was_waiting,
    }
}

/// A try that did not get its locks, though its message went through: whatever it took is given back.
pub(crate) async fn undo<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    is_session: bool,
    error: Error,
) -> Refused {
    let (outer, token) = (held.outer, held.token);
    let undo = match (outer, is_session) {
        (Some(outer), false) => sql::rollback_to_savepoint(outer, token),
        // Session-level locks are given back by name.
        _ if held.scope == Scope::Session => String::new(),
        _ => sql::ROLLBACK.to_owned(),
    };
    let undone = if undo.is_empty() {
        Ok(())
    } else {
        held.pg().execute(&undo).await
    };
    held.phase = Phase::Idle;
    let error = match undone {
        Ok(()) => error,
        Err(error) => {
            held.pg().status().set_in_error();
            Error::Database(error)
        }
    };
    Refused {
        error,
        is_by_check: false,
        was_waiting: false,
    }
}

/// What a refused message has left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// As it was before.
    AsBefore,
    /// A transaction is open that Diesel does not know of; begin's error has failed it.
    Foreign,
    /// The transaction around the call had failed before; Diesel's own ROLLBACK still ends it.
    Failed,
    Broken,
}

/// Leaves a refused message behind: a session that is idle, an outer transaction that goes on, or a connection that says it is
/// broken.
async fn leave_refused<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    is_session: bool,
    source: &DieselError,
) -> State {
    let (outer, token, around) = (held.outer, held.token, held.around());
    let conn = held.pg();
    if error::is_connection_lost(source) {
        conn.status().set_in_error();
        return State::Broken;
    }
    if is_session && conn.execute(sql::ROLLBACK_TO_ACQUIRE).await.is_ok() {
        let is_back =
            around == Around::TestTransaction || conn.execute(sql::ROLLBACK).await.is_ok();
        if is_back {
            return State::AsBefore;
        }
    } else if !is_session
        && let Some(outer) = outer
        && conn
            .execute(&sql::rollback_to_savepoint(outer, token))
            .await
            .is_ok()
    {
        return State::AsBefore;
    }
    let mut probed = conn.execute(sql::PROBE).await;
    if probed.is_err() {
        // The server tells of a session's end (57P01) before it closes the connection: that is no failed transaction.
        probed = conn.execute(sql::PROBE).await;
    }
    match (probed, outer) {
        (Err(error), _) if error::is_connection_lost(&error) => {
            conn.status().set_in_error();
            State::Broken
        }
        // There is no outer transaction any more, and the caller goes on as if there were.
        (Ok(()), Some(_)) if !is_session => {
            doom(conn).await;
            State::Broken
        }
        (Err(_), Some(_)) => State::Failed,
        (Ok(()), _) => State::AsBefore,
        (Err(_), None)
            if is_session
                && !error::has_marker(source, sql::FOREIGN)
                && !error::has_marker(source, sql::PREPARED) =>
        {
            // Between the hand-over's two halves, or a foreign transaction that had failed before.
            end_session(held).await;
            State::Broken
        }
        (Err(_), None) => State::Foreign,
    }
}

/// Gives back what a refused acquisition of session-level locks has taken.
pub(crate) async fn take_back<O: ?Sized, L: Link>(
    mut held: Held<'_, O, L>,
    refused: Refused,
) -> Error {
    if refused.is_by_check || held.pg().status().transaction_depth().is_err() {
        held.phase = Phase::Idle;
        return refused.error;
    }
    held.phase = Phase::Waiting;
    let taken = if refused.was_waiting {
        Taken::Interrupted
    } else {
        Taken::Refused
    };
    let release = sql::release_taken(&held.for_release(), taken);
    let released = held.pg().execute(&release).await;
    if released.is_err() {
        end_session(&mut held).await;
    }
    held.phase = Phase::Idle;
    refused.error
}

/// What has ended a wait: the budget, the session's own time-outs, or a request.
///
/// A wait that was as long as its time-out was ended by it, unless the words are those of another. The words of a cancel
/// request and of `statement_timeout` are the server's, in its language, asked for by having the same happen again.
async fn interrupted<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    request: &Request,
    source: DieselError,
) -> Error {
    let lock = held.lock.text();
    let waited = held.waited;
    let on_server = waited.saturating_sub(request.queued);
    let timeouts = held.pg().ask(sql::TIMEOUTS).await.ok().flatten();
    let mut timeouts = timeouts
        .iter()
        .flat_map(|both| both.split(' '))
        .map(|one| one.parse().ok().filter(|timeout| *timeout > 0))
        .map(|timeout| timeout.map(Duration::from_millis));
    let (lock_timeout, statement_timeout) = (
        timeouts.next().unwrap_or_default(),
        timeouts.next().unwrap_or_default(),
    );
    let budget = match request.budget() {
        Wait::For(budget) => Some(budget),
        Wait::Session => lock_timeout,
        Wait::Never | Wait::Forever => None,
    };
    let is_spent = budget.is_some_and(|budget| on_server >= budget);
    let other_is_possible = statement_timeout.is_some_and(|timeout| on_server >= timeout);
    if is_spent && !other_is_possible {
        let source = Some(source);
        return Error::TimedOut {
            lock,
            waited,
            source,
        };
    }
    let words = |error: &DieselError| match error {
        DieselError::DatabaseError(_, answer) => answer.message().to_owned(),
        _ => String::new(),
    };
    let said = words(&source);
    let mut causes = Vec::new();
    if other_is_possible {
        causes.push(sql::CANCELLED_BY_TIMEOUT);
    }
    if !is_spent {
        causes.push(sql::CANCELLED_BY_REQUEST);
    }
    for cause in causes {
        if let Err(same) = provoke(held, cause).await
            && words(&same) == said
        {
            return Error::Cancelled { lock, source };
        }
    }
    if is_spent {
        let source = Some(source);
        return Error::TimedOut {
            lock,
            waited,
            source,
        };
    }
    Error::Database(source)
}

/// Runs what fails, and leaves the session as it was.
async fn provoke<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    cause: &str,
) -> Result<(), DieselError> {
    let outer = held.outer;
    let conn = held.pg();
    if outer.is_none() {
        return conn.execute(cause).await;
    }
    if conn.execute("SAVEPOINT advisory_cause").await.is_err() {
        return Ok(());
    }
    let failed = conn.execute(cause).await;
    let undo = "ROLLBACK TO SAVEPOINT advisory_cause;RELEASE SAVEPOINT advisory_cause";
    drop(conn.execute(undo).await);
    failed
}
