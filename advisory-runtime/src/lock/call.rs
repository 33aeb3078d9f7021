//! One locked call: its request, its state, and what it sends on the connection that it is given. It keeps no connection.

use super::lock_info::LockInfo;
use super::way::{Way, session};
use crate::error::{BusyLock, LockName};
use crate::observe::Telemetry;
use crate::{Error, Isolation, Key, Request, Wait, debug};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// The request and the state of one locked call.
#[derive(Debug)]
pub(super) struct Call {
    /// Of a call that polls, the current try.
    pub(super) request: Request,
    pub(super) way: Way,
    pub(super) phase: Phase,
    /// The depth of the outer transaction, as Diesel counts it.
    pub(super) outer: Option<NonZeroU32>,
    /// The backend that must serve the statements that take and release session-level locks, where that can be known.
    pub(super) process: Option<i32>,
    /// For a lock with permits, the one that it took.
    pub(super) permit: Option<Key>,
    /// SQL that restores the settings that a session-level lock with `max_hold` changes.
    pub(super) restore_timeouts: Option<String>,
    timing: Timing,
    pub(super) checks: debug::Checks,
    pub(super) telemetry: Option<Telemetry>,
}

#[derive(Clone, Copy, Debug)]
struct Timing {
    started: Instant,
    acquired: Instant,
    /// With the time in the queue of this process.
    waited: Duration,
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

impl Call {
    /// A call on this connection that has sent nothing.
    pub(super) fn new<D>(conn: &mut D, way: Way, request: Request) -> Self {
        let address = std::ptr::from_mut(conn).addr();
        let needs_session = way == Way::Session || request.isolation != Isolation::ReadCommitted;
        let checks = debug::Checks::new(address, &request, needs_session);
        let started = Instant::now();
        Self {
            request,
            way,
            phase: Phase::Idle,
            outer: None,
            process: None,
            permit: None,
            restore_timeouts: None,
            timing: Timing {
                started,
                acquired: started,
                waited: Duration::ZERO,
            },
            checks,
            telemetry: None,
        }
    }

    fn name(&self) -> LockName {
        LockName::new(self.request.pattern, &self.request.keys)
    }

    /// The name of the lock in an error.
    pub(super) fn lock(&self) -> Cow<'static, str> {
        self.name().text()
    }

    pub(super) fn info<D>(&self) -> LockInfo<D> {
        LockInfo {
            name: self.name(),
            keys: self.request.keys.clone(),
            permit: self.permit,
            permits: match self.permit {
                Some(_) => Vec::new(),
                None => self.request.permits.clone(),
            },
            mode: self.request.mode,
            waited: self.timing.waited,
            driver: PhantomData,
        }
    }

    /// How long the acquisition took, with the time in the queue of this process.
    pub(super) const fn waited(&self) -> Duration {
        self.timing.waited
    }

    /// Whether a wait at the server has lasted for at least this long.
    pub(super) fn has_waited(&self, budget: Duration) -> bool {
        self.timing.waited.saturating_sub(self.request.queued) >= budget
    }

    /// The error of a try: another session holds one of the keys.
    pub(super) fn not_available(&self) -> Error {
        Error::NotAvailable {
            lock: self.lock(),
            busy: self.busy(),
        }
    }

    /// The keys that another session may hold: of a lock with permits, those of all permits.
    pub(super) fn busy(&self) -> BusyLock {
        BusyLock::new(match &self.request.permits[..] {
            [] => &self.request.keys,
            permits => permits,
        })
    }

    pub(super) fn has_outlasted_max_hold(&self) -> bool {
        self.request
            .max_hold
            .is_some_and(|max_hold| self.timing.acquired.elapsed() > max_hold)
    }

    pub(super) fn hold_exceeded(&self) -> Error {
        Error::HoldExceeded {
            lock: self.lock(),
            max_hold: self.request.max_hold.unwrap_or_default(),
        }
    }

    /// Records whether the locks were acquired.
    pub(super) fn record_acquisition(&mut self, acquired: &Result<(), Error>) {
        let waited = self.timing.waited;
        if let Some(telemetry) = &mut self.telemetry {
            match acquired {
                Ok(()) => telemetry.record_acquired(waited),
                Err(error) => telemetry.record_refusal(error),
            }
        }
    }

    /// The answer to the request for the locks has arrived.
    pub(super) fn record_time(&mut self) {
        let acquired = Instant::now();
        self.timing.acquired = acquired;
        self.timing.waited = acquired.duration_since(self.timing.started) + self.request.queued;
    }

    /// Restores the session's own timeouts, and releases session-level locks: in this order, so that no statement comes behind the
    /// release, whose interruption would hide that the locks were held.
    pub(super) fn release_message(&self) -> String {
        let keys = match &self.permit {
            Some(permit) => std::slice::from_ref(permit),
            None => &*self.request.keys,
        };
        let release = session::release_keys(keys, self.request.mode, self.process);
        match &self.restore_timeouts {
            Some(restore) => format!("{restore};{release}"),
            None => release,
        }
    }

    /// What is left of the wait for the server.
    pub(super) fn budget(&self) -> Wait {
        self.request.budget()
    }
}

/// The depth inside a transaction or savepoint opened at `outer`.
pub(super) fn inside(outer: Option<NonZeroU32>) -> NonZeroU32 {
    outer.map_or(NonZeroU32::MIN, |outer| outer.saturating_add(1))
}
