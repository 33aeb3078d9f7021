//! The guard of a lock: cleanup when a locked call is dropped or panics.
//!
//! Without it the backend would go on waiting, get the lock, and stay idle in transaction. The next `transaction()` on the connection
//! would become a savepoint that is never committed.

use super::acquired::Acquired;
use super::body::Run;
use crate::driver::{Driver, Unfinished};
use crate::error::{BusyLock, LockName, is_interrupted};
use crate::observe::Telemetry;
use crate::request::Keys;
use crate::sql::session::{self, Around};
use crate::sql::try_lock::TryLock;
use crate::sql::{Acquisition, Question};
use crate::{Error, Isolation, Key, Mode, Request, Wait, debug};
use diesel::QueryResult;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Gets the connection out of the value that the guard borrows. A function pointer instead of a closure, so that a thousand lock
/// sites share one instance of the code.
pub(crate) type Place<O, D> = fn(&mut O) -> &mut D;

/// The guard of one lock or several. It borrows the connection, or the value that contains it.
///
/// Dropping it before its end closes an async connection: the transaction is rolled back, every lock is released, and the server is
/// asked to cancel a statement that still runs. A pool replaces the connection. On a connection of your own, every further locked
/// call is refused ([`Error::BrokenConnection`](crate::Error::BrokenConnection)). A blocking connection is rolled back and stays
/// usable.
#[must_use = "dropping a held lock rolls its transaction back"]
pub struct Held<'o, O: ?Sized, D: Driver> {
    owner: &'o mut O,
    place: Place<O, D>,
    pub(super) scope: Scope,
    /// The depth of the outer transaction, as Diesel counts it.
    pub(super) outer: Option<NonZeroU32>,
    pub(super) name: LockName,
    pub(super) keys: Keys,
    /// For a lock with permits: those that the last try asked for, and the one that it took.
    pub(super) permits: Vec<Key>,
    pub(super) permit: Option<Key>,
    pub(super) mode: Mode,
    /// The backend that must serve the statements that take and release session-level locks, where that can be known.
    pub(super) process: Option<i32>,
    pub(super) phase: Phase,
    /// How long the wait may take, and how much of it has passed in this process.
    pub(super) budget: Wait,
    pub(super) queued: Duration,
    started: Instant,
    acquired_at: Instant,
    pub(super) waited: Duration,
    pub(super) max_hold: Option<Duration>,
    /// SQL that restores the settings that a session-level lock with `max_hold` changes.
    pub(super) restore_timeouts: Option<String>,
    pub(super) checks: debug::Call,
    pub(super) telemetry: Option<Telemetry>,
}

/// The state of a guard of session-level locks, without their connection.
#[derive(Debug)]
pub(super) struct HeldLocks {
    outer: Option<NonZeroU32>,
    pub(super) acquired: Acquired,
    permits: Vec<Key>,
    process: Option<i32>,
    acquired_at: Instant,
    max_hold: Option<Duration>,
    restore_timeouts: Option<String>,
    pub(super) checks: debug::Call,
    telemetry: Option<Telemetry>,
}

/// How long the locks are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Xact,
    Session,
}

impl Scope {
    /// The value of the attribute's argument `scope`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Xact => "xact",
            Self::Session => "session",
        }
    }
}

/// What a call may have left at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing: nothing was sent, or the call has ended.
    Idle,
    /// The locks, or a request for them, and the body's statements.
    Open,
    /// The end was sent, and must not be cancelled.
    Finishing,
}

impl<'o, O: ?Sized, D: Driver> Held<'o, O, D> {
    pub(super) fn new(
        owner: &'o mut O,
        place: Place<O, D>,
        scope: Scope,
        request: &Request,
    ) -> Self {
        let address = std::ptr::from_mut(place(owner)).addr();
        let needs_session =
            scope == Scope::Session || request.isolation != Isolation::ReadCommitted;
        let checks = debug::Call::new(address, request, needs_session);
        let started = Instant::now();
        Self {
            owner,
            place,
            scope,
            outer: None,
            name: LockName::new(request.pattern, &request.keys),
            keys: request.keys.clone(),
            permits: request.permits.clone(),
            permit: None,
            mode: request.mode,
            process: None,
            phase: Phase::Idle,
            budget: request.budget(),
            queued: request.queued,
            started,
            acquired_at: started,
            waited: Duration::ZERO,
            max_hold: request.max_hold,
            restore_timeouts: None,
            checks,
            telemetry: None,
        }
    }

    /// The connection that holds the lock, or the value that contains it.
    pub fn conn(&mut self) -> &mut O {
        self.owner
    }

    /// Which lock it is, and how long the acquisition took.
    #[must_use]
    pub fn acquired(&self) -> Acquired {
        Acquired {
            name: self.name,
            keys: self.keys.clone(),
            permit: self.permit,
            permits: match self.permit {
                Some(_) => Vec::new(),
                None => self.permits.clone(),
            },
            mode: self.mode,
            waited: self.waited,
        }
    }

    /// The state that the body runs in, and [`conn`](Self::conn), in one call, which compiles faster than two.
    #[doc(hidden)]
    pub fn run(&mut self) -> (Run, &mut O) {
        let run = Run::new(
            self.address(),
            &mut self.checks,
            self.max_hold,
            self.telemetry.as_ref(),
        );
        (run, self.owner)
    }

    pub(super) fn driver(&mut self) -> &mut D {
        (self.place)(self.owner)
    }

    /// The connection, and the state of the checks of debug builds.
    pub(super) fn driver_and_checks(&mut self) -> (&mut D, &mut debug::Call) {
        ((self.place)(self.owner), &mut self.checks)
    }

    /// The address of the connection, which cannot move while it is borrowed here.
    pub(super) fn address(&mut self) -> usize {
        std::ptr::from_mut(self.driver()).addr()
    }

    pub(super) fn around(&self) -> Around {
        match self.outer {
            None => Around::Nothing,
            Some(_) => Around::TestTransaction,
        }
    }

    /// The error of a try: another session holds one of the keys.
    pub(super) fn not_available(&self) -> Error {
        Error::NotAvailable {
            lock: self.name.text(),
            busy: self.busy(),
        }
    }

    /// The keys that another session may hold: of a lock with permits, those of all permits.
    pub(super) fn busy(&self) -> BusyLock {
        BusyLock::new(match &self.permits[..] {
            [] => &self.keys,
            permits => permits,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.max_hold
            .is_some_and(|max_hold| self.acquired_at.elapsed() > max_hold)
    }

    /// Asks for the locks, and measures the wait. Returns whether they were taken. The outer error is the message's, the inner one the
    /// question's.
    pub(super) async fn send(
        &mut self,
        acquisition: Acquisition,
    ) -> QueryResult<QueryResult<bool>> {
        self.phase = Phase::Open;
        let Acquisition { message, question } = acquisition;
        let sent = match question {
            None => self.driver().execute(&message).await.map(|()| Ok(true)),
            Some(question) => Box::pin(self.ask(&message, &question)).await,
        };
        self.note_time();
        sent
    }

    /// As [`send`](Self::send) for a query alone.
    pub(super) async fn try_lock(&mut self, query: TryLock) -> QueryResult<Option<bool>> {
        self.phase = Phase::Open;
        let answer = self.driver().try_lock(query).await;
        self.note_time();
        query.is_taken(answer?.as_deref())
    }

    fn note_time(&mut self) {
        self.acquired_at = Instant::now();
        self.waited = self.acquired_at.duration_since(self.started) + self.queued;
    }

    async fn ask(&mut self, message: &str, question: &Question) -> QueryResult<QueryResult<bool>> {
        let driver = self.driver();
        let source = match driver.execute_and_ask(message, &question.sql).await? {
            Ok(rows) => {
                if rows == 0
                    && let Some(undo) = question.undo_miss()
                    && let Err(error) = driver.execute(&undo).await
                {
                    // The transaction may still be open, with some of several keys.
                    self.abandon();
                    return Err(error);
                }
                return Ok(Ok(self.note_answer(rows)));
            }
            Err(source) => source,
        };
        // Behind a pooler that does not track prepared statements, the statement's name can be taken (42P05), or the statement can be
        // gone before it is executed (26000).
        if is_interrupted(&source)
            && let Some(undo) = &question.undo
            && driver.execute(undo).await.is_ok()
        {
            let asked = driver.execute(&question.by_text(message)).await;
            return Ok(asked.map(|()| true));
        }
        Ok(Err(source))
    }

    /// Gives up the borrow of the connection, with the locks still held on it. [`attach`](Self::attach) undoes it.
    pub(super) fn detach(mut self) -> HeldLocks {
        self.phase = Phase::Idle;
        HeldLocks {
            outer: self.outer,
            acquired: self.acquired(),
            permits: std::mem::take(&mut self.permits),
            process: self.process,
            acquired_at: self.acquired_at,
            max_hold: self.max_hold,
            restore_timeouts: self.restore_timeouts.take(),
            checks: std::mem::take(&mut self.checks),
            telemetry: self.telemetry.take(),
        }
    }

    /// The guard of session-level locks that the connection holds.
    pub(super) fn attach(owner: &'o mut O, place: Place<O, D>, locks: HeldLocks) -> Self {
        let Acquired {
            name,
            keys,
            permit,
            mode,
            waited,
            permits: _,
        } = locks.acquired;
        Self {
            owner,
            place,
            scope: Scope::Session,
            outer: locks.outer,
            name,
            keys,
            permits: locks.permits,
            permit,
            mode,
            process: locks.process,
            phase: Phase::Open,
            budget: Wait::Session,
            queued: Duration::ZERO,
            started: locks.acquired_at,
            acquired_at: locks.acquired_at,
            waited,
            max_hold: locks.max_hold,
            restore_timeouts: locks.restore_timeouts,
            checks: locks.checks,
            telemetry: locks.telemetry,
        }
    }

    /// Whether a question with this many rows has taken the locks. With permits, the number of rows is the position of the one taken.
    fn note_answer(&mut self, rows: usize) -> bool {
        let last = rows.checked_sub(1);
        self.permit = last.and_then(|last| self.permits.get(last)).copied();
        last.is_some()
    }

    /// Restores the session's own timeouts, and releases session-level locks: in this order, so that no statement comes behind the
    /// release, whose interruption would hide that the locks were held.
    pub(super) fn release_message(&self) -> String {
        let keys = match &self.permit {
            Some(permit) => std::slice::from_ref(permit),
            None => &self.keys,
        };
        let release = session::release(keys, self.mode, self.process);
        match &self.restore_timeouts {
            Some(restore) => format!("{restore};{release}"),
            None => release,
        }
    }

    /// Leaves the call before its end. See [`Driver::abandon`].
    pub(super) fn abandon(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        let release = match self.scope {
            Scope::Xact => None,
            Scope::Session => Some(self.release_message()),
        };
        let call = Unfinished {
            outer: self.outer,
            release: release.as_deref(),
            is_cancellable: phase == Phase::Open,
        };
        self.driver().abandon(&call);
    }

    /// Closes the connection, and waits until the locks are released, for a second at most.
    pub(super) async fn close(&mut self) {
        self.checks.stop_waiting();
        let phase = std::mem::replace(&mut self.phase, Phase::Idle);
        self.driver().close(phase == Phase::Open);
        self.driver().wait_until_closed().await;
    }
}

impl<O: ?Sized, D: Driver> Drop for Held<'_, O, D> {
    fn drop(&mut self) {
        if self.phase != Phase::Idle {
            self.abandon();
        }
    }
}

impl<O: ?Sized, D: Driver> std::fmt::Debug for Held<'_, O, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("lock", &self.name.text())
            .field("scope", &self.scope)
            .field("outer", &self.outer)
            .finish_non_exhaustive()
    }
}

/// The depth inside a transaction or savepoint opened at `outer`.
pub(super) fn inside(outer: Option<NonZeroU32>) -> NonZeroU32 {
    outer.map_or(NonZeroU32::MIN, |outer| outer.saturating_add(1))
}
