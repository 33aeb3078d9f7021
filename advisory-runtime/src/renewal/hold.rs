//! Is the row still held, as far as this process knows, and has somebody ended it?

use super::expiry::Expiry;
use super::margin;
use crate::Error;
use diesel::result::Error as DieselError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What the tasks that renew, watch and end one held row share.
#[derive(Debug)]
pub(crate) struct Hold {
    state: Mutex<State>,
    margin: Duration,
    /// Wakes who watches, when the hold is lost.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    until: Expiry,
    is_lost: bool,
    end: End,
    /// Why the server could not be asked.
    reason: Option<DieselError>,
}

/// Whether this process has ended the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    /// The statement that ends it has no answer yet.
    Asked,
    /// Ended since then in a transaction of the caller's that may still be rolled back.
    Inside(Instant),
    Done,
}

impl Hold {
    /// A grant counts from before it was asked for.
    pub(crate) fn new(sent: Instant, ttl: Duration) -> Self {
        Self {
            state: Mutex::new(State {
                until: Expiry::after(sent, ttl),
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

    /// A renewal that was sent then has succeeded.
    pub(crate) fn renewed(&self, sent: Instant, ttl: Duration) {
        let mut state = self.state();
        state.until = state.until.extended(Expiry::after(sent, ttl));
    }

    /// The server says that the row is not held any more.
    pub(crate) fn lose(&self) {
        let mut state = self.state();
        state.is_lost |= state.end != End::Done;
        drop(state);
        self.changed.notify_waiters();
    }

    /// The transaction in which the hold was ended was committed, or it was rolled back.
    pub(crate) fn settle(&self, is_committed: bool) {
        let mut state = self.state();
        if matches!(state.end, End::Inside(_)) {
            state.end = if is_committed { End::Done } else { End::Open };
            // A refused renewal was a sign of the commit.
            state.is_lost &= !is_committed;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Remembers why the server could not be asked.
    pub(crate) fn blame(&self, error: Error) {
        self.state().reason = Some(error.into());
    }

    pub(crate) fn reason(&self) -> Option<DieselError> {
        self.state().reason.take()
    }

    pub(crate) fn end(&self) -> End {
        self.state().end
    }

    /// Says that a statement is being sent that ends the hold.
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

    /// When the row can be another's.
    pub(crate) fn expires(&self) -> Instant {
        self.state().until.steady()
    }

    /// When work under it has to have stopped.
    pub(crate) fn deadline(&self) -> Instant {
        let expires = self.expires();
        expires.checked_sub(self.margin).unwrap_or(expires)
    }

    /// Whether the row can be another's, whoever has ended it.
    pub(crate) fn is_expired(&self) -> bool {
        self.state().until.is_over_within(Duration::ZERO)
    }

    /// Whether this process must not act under it any more.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state();
        state.is_lost || state.end == End::Done || state.until.is_over_within(Duration::ZERO)
    }

    pub(crate) fn stop(&self) -> Option<super::Stop> {
        let state = self.state();
        let is_late = || state.until.is_over_within(self.margin);
        match state.end {
            End::Open if state.is_lost || is_late() => Some(super::Stop::Lost),
            // If the statement has ended it, renewals are refused before its answer is here.
            End::Asked if is_late() => Some(super::Stop::Unanswered),
            _ => None,
        }
    }

    /// Resolves at the next change. Ask for it before you look at the state.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}

/// A statement on its way that ends the hold. Dropped without [`done`](Self::done), the hold is as it was before.
pub(crate) struct Ending<'h> {
    hold: &'h Hold,
    end: End,
}

impl Ending<'_> {
    /// It has ended the hold: inside an open transaction, or for good.
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
