//! Whether the row is still held, as far as this process knows.

use super::{Expiry, Sent, UNANSWERED, margin};
use diesel::result::Error as DieselError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The state that the tasks which renew, watch and end a held row share.
#[derive(Debug)]
pub(crate) struct Tenure {
    state: Mutex<State>,
    margin: Duration,
    /// How long work may go on after the statement that ended the tenure in a transaction.
    grace: Duration,
    /// Wakes the task that watches.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    until: Expiry,
    is_lost: bool,
    end: End,
    /// When the work must have returned, after a statement that ended the tenure in a transaction: the answer to the commit may never
    /// come, also if the server is reached on other connections.
    return_by: Option<Instant>,
    /// Why the last renewal failed.
    reason: Option<DieselError>,
}

/// Whether this process has ended the tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    /// The statement that ends it was sent and has no answer yet.
    Asked,
    /// Ended at this time in a transaction of the caller's, which may still be rolled back.
    Inside(Instant),
    /// That transaction was rolled back, so that it is held as before.
    RolledBack,
    Done,
}

impl Tenure {
    /// A tenure until then, whose renewals last for `ttl`.
    pub(crate) fn new(until: Expiry, ttl: Duration) -> Self {
        Self {
            state: Mutex::new(State {
                until,
                is_lost: false,
                end: End::Open,
                return_by: None,
                reason: None,
            }),
            margin: margin(ttl),
            grace: ttl.max(UNANSWERED),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a renewal. It never shortens the tenure.
    pub(crate) fn renewed(&self, sent: Sent, ttl: Duration) {
        self.state().until.extend(Expiry::after(sent, ttl));
    }

    /// Records that the row is not held any more.
    pub(crate) fn lose(&self) {
        let mut state = self.state();
        state.is_lost |= state.end != End::Done;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records how the transaction that ended the tenure has ended.
    pub(crate) fn settle(&self, is_committed: bool) {
        let mut state = self.state();
        if matches!(state.end, End::Inside(_)) {
            if is_committed {
                state.end = End::Done;
            } else {
                (state.end, state.return_by) = (End::RolledBack, None);
            }
            // After a commit, a refused renewal does not mean that the row was lost.
            state.is_lost &= !is_committed;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records why a renewal failed.
    pub(crate) fn blame(&self, error: DieselError) {
        self.state().reason = Some(error);
    }

    pub(crate) fn reason(&self) -> Option<DieselError> {
        self.state().reason.take()
    }

    pub(crate) fn end(&self) -> End {
        self.state().end
    }

    /// Records that a statement which ends the tenure is being sent.
    pub(crate) fn ending(&self) -> Ending<'_> {
        let before = std::mem::replace(&mut self.state().end, End::Asked);
        Ending {
            tenure: self,
            end: before,
            return_by: None,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    /// When others can take the row.
    pub(crate) fn expires(&self) -> Instant {
        self.state().until.steady()
    }

    /// When work under the tenure must have stopped.
    pub(crate) fn deadline(&self) -> Instant {
        let expires = self.expires();
        expires.checked_sub(self.margin).unwrap_or(expires)
    }

    /// When work must have returned after the tenure has ended.
    pub(crate) fn return_by(&self) -> Option<Instant> {
        self.state().return_by
    }

    /// Whether others can take the row by now.
    pub(crate) fn is_expired(&self) -> bool {
        self.state().until.is_over_within(Duration::ZERO)
    }

    /// Whether this process must not rely on the tenure any more.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state();
        state.is_lost || state.end == End::Done || state.until.is_over_within(Duration::ZERO)
    }

    pub(crate) fn stop(&self) -> Option<super::Stop> {
        let state = self.state();
        let is_late = || state.until.is_over_within(self.margin);
        match state.end {
            End::Open | End::RolledBack if state.is_lost || is_late() => Some(super::Stop::Lost),
            // A refused renewal may come before the answer of the statement that ended the tenure.
            End::Asked if is_late() => Some(super::Stop::Unanswered),
            End::Inside(_) | End::Done
                if state.return_by.is_some_and(|by| Instant::now() >= by) =>
            {
                Some(super::Stop::Unanswered)
            }
            _ => None,
        }
    }

    /// Resolves at the next change. Enable it before reading the state.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}

/// A statement that ends the tenure, on its way. Unless it is [`done`](Self::done), its drop restores the state from before.
pub(crate) struct Ending<'h> {
    tenure: &'h Tenure,
    end: End,
    return_by: Option<Instant>,
}

impl Ending<'_> {
    /// The statement has ended the tenure: inside an open transaction, or for good.
    pub(crate) fn done(mut self, is_inside: bool) {
        self.end = End::Done;
        if is_inside {
            let now = Instant::now();
            self.end = End::Inside(now);
            // A limit beyond the clock's range never comes.
            self.return_by = now.checked_add(self.tenure.grace);
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.tenure.state();
        (state.end, state.return_by) = (self.end, self.return_by);
        drop(state);
        // A task that watches has a new deadline.
        self.tenure.changed.notify_waiters();
    }
}
