//! How locks are asked for, in either scope, and what the server's refusal means.
//!
//! What a refusal means is read off its form and off the session's state, because Diesel hides the SQLSTATE and messages are
//! translated.

use crate::guard::{Held, Phase, Place, Scope};
use crate::holding::held_by_this_task;
use crate::link::{Link, depth, enter};
use crate::sql::{self, Around};
use crate::{Error, Isolation, Request, Wait, error};
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Opens a transaction that holds the locks.
pub(crate) async fn begin<'o, O: ?Sized, L: Link>(
    owner: &'o mut O,
    place: Place<O, L>,
    request: Request,
) -> Result<Held<'o, O, L>, Error> {
    let mut held = held(owner, place, Scope::Xact, &request)?;
    refuse_self_deadlock(&mut held, &request).await?;
    let token = held.token;
    match held.outer {
        None if request.isolation == Isolation::ReadCommitted => {
            let message = sql::begin(token, &request);
            let sent = send(&mut held, &request, &message).await;
            sent.map_err(Refused::error)?;
        }
        None => {
            let message = sql::hand_over(token, &request);
            if let Err(refused) = send(&mut held, &request, &message).await {
                return Err(take_back(held, refused).await);
            }
        }
        Some(outer) => {
            let message = sql::begin_nested(outer, token, &request, false);
            let mut sent = send(&mut held, &request, &message).await;
            if let Err(Refused { error, .. }) = &sent
                && matches!(error, Error::StaleSnapshot { .. })
            {
                // Without harm where this transaction has held the keys since before its snapshot.
                let message = sql::begin_nested(outer, token, &request, true);
                sent = send(&mut held, &request, &message).await;
            }
            sent.map_err(Refused::error)?;
        }
    }
    enter(held.pg()).map_err(Error::Database)?;
    Ok(held)
}

/// Takes session-level locks.
pub(crate) async fn acquire<'o, O: ?Sized, L: Link>(
    owner: &'o mut O,
    place: Place<O, L>,
    request: Request,
) -> Result<Held<'o, O, L>, Error> {
    let mut held = held(owner, place, Scope::Session, &request)?;
    refuse_self_deadlock(&mut held, &request).await?;
    let message = sql::acquire(held.token, &request, held.around());
    if let Err(refused) = send(&mut held, &request, &message).await {
        return Err(take_back(held, refused).await);
    }
    Ok(held)
}

/// Checks what can be known without the server.
fn held<'o, O: ?Sized, L: Link>(
    owner: &'o mut O,
    place: Place<O, L>,
    scope: Scope,
    request: &Request,
) -> Result<Held<'o, O, L>, Error> {
    let mut held = Held::new(owner, place, scope, next_token(), request);
    let lock = held.lock;
    if request.keys.is_empty() {
        let (lock, slice) = (lock.text(), "keys");
        return Err(Error::NoKeys { lock, slice });
    }
    let conn = held.pg();
    let outer = match depth(conn) {
        Ok(Some(outer)) => Some(outer),
        Ok(None) if !conn.is_broken() => None,
        _ => return Err(Error::BrokenConnection { lock: lock.text() }),
    };
    // A transaction that a test began is, to the code under test, none.
    let is_inside = outer.is_some_and(|outer| outer > NonZeroU32::MIN || conn.is_broken());
    let needs_outside = scope == Scope::Session
        || request.refuses_nested
        || request.isolation != Isolation::ReadCommitted;
    if is_inside && needs_outside {
        return Err(Error::InTransaction { lock: lock.text() });
    }
    held.outer = outer;
    // In a test's transaction the level is the test's own, and there is nothing to hand over.
    held.is_handed_over &= outer.is_none();
    Ok(held)
}

/// In debug builds: waiting for what this task itself holds on another connection would never end.
async fn refuse_self_deadlock<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    request: &Request,
) -> Result<(), Error> {
    if !cfg!(debug_assertions) || request.budget() == Wait::Never {
        return Ok(());
    }
    let keys = held_by_this_task(held.address(), request);
    if keys.is_empty() {
        return Ok(());
    }
    // The same number may be held in another database.
    let question = sql::held_elsewhere(&keys);
    let answer = held.pg().ask(&question).await.map_err(Error::Database)?;
    if answer.is_some_and(|count| count != "0") {
        return Err(Error::SelfDeadlock {
            lock: held.lock.text(),
        });
    }
    Ok(())
}

/// A refused message: what it means, and what the session is left in.
pub(crate) struct Refused {
    error: Error,
    /// The message was refused before anything was asked for.
    is_by_check: bool,
}

impl Refused {
    fn error(self) -> Error {
        self.error
    }
}

/// Sends the message, and tells apart what its refusal means.
async fn send<O: ?Sized, L: Link>(
    held: &mut Held<'_, O, L>,
    request: &Request,
    message: &str,
) -> Result<(), Refused> {
    held.phase = Phase::Waiting;
    let started = held.started;
    let is_try = request.budget() == Wait::Never;
    let sent = if is_try {
        held.pg().execute_and_ask(message).await
    } else {
        held.pg().execute(message).await.map(|()| Ok(None))
    };
    held.waited = started.elapsed() + request.queued;
    let is_session = held.scope == Scope::Session || held.is_handed_over;
    let source = match sent {
        Ok(step) if is_try => {
            let all = sql::step_of_all(held.token, request, is_session);
            let missed = match step {
                Ok(step) if step.as_deref() == Some(&*all) => {
                    held.phase = Phase::Held;
                    held.acquired_at = Instant::now();
                    return Ok(());
                }
                Ok(_) => Error::NotAvailable {
                    lock: held.lock.text(),
                },
                // What it got is not known, such as after a `DEALLOCATE ALL`.
                Err(source) => Error::Database(source),
            };
            return Err(undo(held, is_session, missed).await);
        }
        Ok(_) => {
            held.phase = Phase::Held;
            held.acquired_at = Instant::now();
            return Ok(());
        }
        Err(source) => source,
    };
    let state = leave_refused(held, is_session, &source).await;
    held.phase = Phase::Idle;
    let lock = held.lock.text();
    let is_by_check = [sql::STALE, sql::STANDBY, sql::POOLED, sql::FOREIGN]
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
    } else if error::is_deadlock(&source) {
        Error::Deadlock { lock, source }
    } else if error::is_interrupted(&source) {
        interrupted(held, request, source).await
    } else {
        Error::Database(source)
    };
    Err(Refused { error, is_by_check })
}

/// A try that did not get its locks, though its message went through: whatever it took is given back.
async fn undo<O: ?Sized, L: Link>(
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
    let is_by_check = false;
    Refused { error, is_by_check }
}

/// What a refused message has left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// As it was before.
    AsBefore,
    /// A transaction is open that Diesel does not know of; begin's error has failed it.
    Foreign,
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
    match (conn.execute(sql::PROBE).await, outer) {
        (Err(error), _) if error::is_connection_lost(&error) => {
            conn.status().set_in_error();
            State::Broken
        }
        // There is no outer transaction any more, and the caller goes on as if there were.
        (Ok(()), Some(_)) if !is_session => {
            crate::finish::doom(conn).await;
            State::Broken
        }
        // The outer transaction had failed before, so there was no savepoint; Diesel's own ROLLBACK still ends it.
        (Err(_), Some(_)) | (Ok(()), _) => State::AsBefore,
        (Err(_), None) if is_session && !error::has_marker(source, sql::FOREIGN) => {
            // Between the hand-over's two halves, or a foreign transaction that had failed before.
            end_session(held).await;
            State::Broken
        }
        (Err(_), None) => State::Foreign,
    }
}

/// Gives back what a refused acquisition of session-level locks has taken.
async fn take_back<O: ?Sized, L: Link>(mut held: Held<'_, O, L>, refused: Refused) -> Error {
    if refused.is_by_check || held.pg().status().transaction_depth().is_err() {
        return refused.error;
    }
    held.phase = Phase::Waiting;
    let release = sql::release_taken(&held.for_release(), true);
    let released = held.pg().execute(&release).await;
    if released.is_err() {
        end_session(&mut held).await;
    }
    held.phase = Phase::Idle;
    refused.error
}

/// Ends the session and waits until that has happened.
pub(crate) async fn end_session<O: ?Sized, L: Link>(held: &mut Held<'_, O, L>) {
    let sent = held.give_up(true);
    wait_until_gone(held.pg(), sent).await;
}

/// Waits for the end of what [`Held::give_up`] has sent; not where the request did not arrive: nothing then ends what runs,
/// while the caller keeps the connection open.
pub(crate) async fn wait_until_gone<L: Link>(conn: &mut L, sent: Option<crate::link::Sent>) {
    let is_sent = match sent {
        Some(sent) => sent.await,
        None => true,
    };
    if is_sent {
        drop(conn.execute(sql::PROBE).await);
    }
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
    conn.execute("SAVEPOINT advisory_cause").await?;
    let failed = conn.execute(cause).await;
    conn.execute("ROLLBACK TO SAVEPOINT advisory_cause;RELEASE SAVEPOINT advisory_cause")
        .await?;
    failed
}

/// A number that no other transaction of this session can have.
fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Runs a future that never waits: every step of it is a blocking call.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}
