//! Is the row still held, as far as this process knows?

use super::{Expiry, Sent, margin};
use crate::Error;
use diesel::result::Error as DieselError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The state that the tasks which renew, watch and end a held row share.
#[derive(Debug)]
pub(crate) struct Hold {
    state: Mutex<State>,
    margin: Duration,
    /// Wakes the task that watches.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    until: Expiry,
    is_lost: bool,
    end: End,
    /// Why the last renewal failed.
    reason: Option<DieselError>,
}

/// Whether this process has ended the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    /// The statement that ends it was sent and has no answer yet.
    Asked,
    /// Ended at this time in a transaction of the caller's, which may still be rolled back.
    Inside(Instant),
    Done,
}

impl Hold {
    /// A hold until then, whose renewals last for `ttl`.
    pub(crate) fn new(until: Expiry, ttl: Duration) -> Self {
        Self {
            state: Mutex::new(State {
                until,
                is_lost: false,
                end: End::Open,
                reason: None,
            }),
            margin: margin(ttl),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a renewal. It never shortens the hold.
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

    /// Records how the transaction that ended the hold has ended.
    pub(crate) fn settle(&self, is_committed: bool) {
        let mut state = self.state();
        if matches!(state.end, End::Inside(_)) {
            state.end = if is_committed { End::Done } else { End::Open };
            // After a commit, a refused renewal does not mean that the row was lost.
            state.is_lost &= !is_committed;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records why a renewal failed.
    pub(crate) fn blame(&self, error: Error) {
        self.state().reason = Some(error.into());
    }

    pub(crate) fn reason(&self) -> Option<DieselError> {
        self.state().reason.take()
    }

    pub(crate) fn end(&self) -> End {
        self.state().end
    }

    /// Records that a statement which ends the hold is being sent.
    pub(crate) fn ending(&self) -> Ending<'_> {
        let before = std::mem::replace(&mut self.state().end, End::Asked);
        Ending {
            hold: self,
            end: before,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    /// When others can take the row.
    pub(crate) fn expires(&self) -> Instant {
        self.state().until.steady()
    }

    /// When work under the hold must have stopped.
    pub(crate) fn deadline(&self) -> Instant {
        let expires = self.expires();
        expires.checked_sub(self.margin).unwrap_or(expires)
    }

    /// Whether others can take the row by now.
    pub(crate) fn is_expired(&self) -> bool {
        self.state().until.is_over_within(Duration::ZERO)
    }

    /// Whether this process must not rely on the hold any more.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state();
        state.is_lost || state.end == End::Done || state.until.is_over_within(Duration::ZERO)
    }

    pub(crate) fn stop(&self) -> Option<super::Stop> {
        let state = self.state();
        let is_late = || state.until.is_over_within(self.margin);
        match state.end {
            End::Open if state.is_lost || is_late() => Some(super::Stop::Lost),
            // A refused renewal may come before the answer of the statement that ended the hold.
            End::Asked if is_late() => Some(super::Stop::Unanswered),
            _ => None,
        }
    }

    /// Resolves at the next change. Enable it before reading the state.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}

/// A statement that ends the hold, on its way. Unless it is [`done`](Self::done), its drop restores the state from before.
pub(crate) struct Ending<'h> {
    hold: &'h Hold,
    end: End,
}

impl Ending<'_> {
    /// The statement has ended the hold: inside an open transaction, or for good.
    pub(crate) fn done(mut self, is_inside: bool) {
        self.end = if is_inside {
            End::Inside(Instant::now())
        } else {
            End::Done
        };
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.hold.state().end = self.end;
    }
}
