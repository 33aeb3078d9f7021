//! One locked call: its request and its state, without the connection.

use super::dropped::Dropped;
use super::lock_info::LockInfo;
use crate::error::BusyLock;
use crate::observe::Telemetry;
use crate::sql::unlock::release_keys;
use crate::{Error, Isolation, Key, Request, debug};
use diesel::result::Error as DieselError;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Call {
    /// The current try of a call that polls.
    pub(super) request: Request,
    pub(super) way: Way,
    pub(super) phase: CallPhase,
    /// The depth of the outer transaction, as Diesel counts it.
    pub(super) outer: Option<NonZeroU32>,
    /// The backend that must take and release session-level locks, if it is known.
    pub(super) process: Option<i32>,
    /// For a lock with permits, the one that it took.
    pub(super) permit: Option<Key>,
    /// SQL that restores the settings that a session-level lock with `max_hold` changes.
    pub(super) restore_timeouts: Option<String>,
    /// With `max_hold`, the locked calls inside this one that its limit has dropped.
    pub(super) dropped: Dropped,
    started: Instant,
    acquired: Instant,
    /// With the time in the queue of this process.
    waited: Duration,
    pub(super) checks: debug::Checks,
    pub(super) telemetry: Option<Telemetry>,
}

/// The time that a call waits for an answer after its own limit: if the network drops every packet,
/// none comes. Closing the session takes another second at most, so the call returns within five
/// seconds after its limit.
pub(super) const ANSWER_MARGIN: Duration = Duration::from_secs(4);

/// The time limit of the answer to a request; the longest one if it has none.
pub(super) fn answer_limit(request: &Request) -> Duration {
    let limit = request.limit();
    limit.map_or(Duration::MAX, |limit| limit.saturating_add(ANSWER_MARGIN))
}

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
    /// Like [`Within`](Self::Within), for a request that does not wait.
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

/// The state that a call may have left at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPhase {
    /// Nothing: nothing was sent, or the call has ended.
    Idle,
    /// The locks, or a request for them.
    Open,
    /// The locks, and the body's statements.
    Held,
    /// The call is ending: without the body's changes, or because it was refused its locks inside
    /// an open transaction. If it is dropped, the statement that runs is not cancelled.
    Finishing,
    /// Like `Finishing`, for an end that keeps the body's changes.
    Committing,
}

impl CallPhase {
    pub(super) const fn is_cancellable(self) -> bool {
        matches!(self, Self::Open | Self::Held)
    }
}

impl Call {
    pub(super) fn new<D>(conn: &mut D, way: Way, request: Request) -> Self {
        let address = std::ptr::from_mut(conn).addr();
        let needs_session = way == Way::Session || request.isolation != Isolation::ReadCommitted;
        let checks = debug::Checks::new(address, &request, needs_session);
        let started = Instant::now();
        Self {
            request,
            way,
            phase: CallPhase::Idle,
            outer: None,
            process: None,
            permit: None,
            restore_timeouts: None,
            dropped: Dropped::default(),
            started,
            acquired: started,
            waited: Duration::ZERO,
            checks,
            telemetry: None,
        }
    }

    pub(super) fn lock_name(&self) -> Cow<'static, str> {
        self.request.lock_name()
    }

    pub(super) fn info<D>(&self) -> LockInfo<D> {
        LockInfo {
            pattern: self.request.pattern,
            keys: self.request.keys.clone(),
            permit: self.permit,
            permits: match self.permit {
                Some(_) => Vec::new(),
                None => self.request.permits.clone(),
            },
            mode: self.request.mode,
            at: self.request.at.clone(),
            waited: self.waited,
            driver: PhantomData,
        }
    }

    /// Returns whether a wait at the server has lasted for about this long, by this process's
    /// clock: while it is adjusted (`adjtime`), it can be slower than the server's by a twelfth.
    pub(super) fn has_waited(&self, budget: Duration) -> bool {
        let waited = self.waited.saturating_sub(self.request.queued);
        waited >= budget.saturating_sub(budget / 8)
    }

    /// The error of a wait that has reached its limit, with the server's answer, if there is one.
    pub(super) fn timed_out(&self, source: Option<DieselError>) -> Error {
        Error::TimedOut {
            lock: self.lock_name(),
            busy: self.busy(),
            waited: match source {
                Some(_) => self.waited,
                None => self.started.elapsed() + self.request.queued,
            },
            source,
        }
    }

    /// The time limit of the answer to the end of the call: the rest of `max_hold`, and
    /// [`ANSWER_MARGIN`]. A rollback takes no time, so for one any limit of the call means
    /// [`ANSWER_MARGIN`].
    pub(super) fn end_limit(&self, is_ok: bool) -> Option<Duration> {
        match self.request.max_hold {
            Some(max_hold) => {
                let left = max_hold.saturating_sub(self.acquired.elapsed());
                Some(left.saturating_add(ANSWER_MARGIN))
            }
            None if !is_ok => self.request.limit().map(|_| ANSWER_MARGIN),
            None => None,
        }
    }

    #[cfg(feature = "diesel-async")]
    pub(super) fn may_drop_body(&mut self) -> Dropped {
        if self.request.max_hold.is_some() {
            self.dropped = Dropped::new();
        }
        self.dropped.clone()
    }

    pub(super) fn not_available(&self) -> Error {
        Error::NotAvailable {
            lock: self.lock_name(),
            busy: self.busy(),
        }
    }

    /// The keys that another session may hold: those of all permits, if the lock has permits.
    pub(super) fn busy(&self) -> BusyLock {
        BusyLock::new(match &self.request.permits[..] {
            [] => &self.request.keys,
            permits => permits,
        })
    }

    pub(super) fn has_outlasted_max_hold(&self) -> bool {
        self.request
            .max_hold
            .is_some_and(|max_hold| self.acquired.elapsed() > max_hold)
    }

    pub(super) fn hold_exceeded(&self) -> Error {
        Error::HoldExceeded {
            lock: self.lock_name(),
            max_hold: self.request.max_hold.unwrap_or_default(),
        }
    }

    pub(super) fn record_acquisition(&mut self, acquired: &Result<(), Error>) {
        if let Some(telemetry) = &mut self.telemetry {
            match acquired {
                Ok(()) => telemetry.record_acquired(self.waited),
                Err(error) => telemetry.record_refusal(error),
            }
        }
    }

    /// The answer to the request for the locks has arrived.
    pub(super) fn record_time(&mut self) {
        self.acquired = Instant::now();
        self.waited = self.acquired.duration_since(self.started) + self.request.queued;
    }

    /// SQL that restores the session's own timeouts and then releases session-level locks. In the
    /// other order, an interruption after the release would hide that the locks were held.
    pub(super) fn release_locks_sql(&self) -> String {
        let permit = self.permit.as_ref().map(std::slice::from_ref);
        let keys = permit.unwrap_or(&self.request.keys);
        let release = release_keys(keys, self.request.mode, self.process);
        match &self.restore_timeouts {
            Some(restore) => format!("{restore};{release}"),
            None => release,
        }
    }
}

/// The depth inside a transaction or savepoint opened at `outer`.
pub(super) fn inside(outer: Option<NonZeroU32>) -> NonZeroU32 {
    outer.map_or(NonZeroU32::MIN, |outer| outer.saturating_add(1))
}
