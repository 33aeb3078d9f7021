//! The state of a held row, as far as this process knows.
//!
//! ```text
//!             renewed
//!            ┌──────┐
//!            ▼      │       ended
//!  granted ─ Held ──┴──────────────────────────────────────▶ Ended
//!            │ ▲                                               ▲
//!            │ │ rolled back (RolledBack)        committed     │
//!            └─┴──────────── InTransaction ────────────────────┘
//!    ended in a transaction of the program's
//! ```
//!
//! A hold that has not ended is marked as lost when a renewal is refused or its time is over. A
//! commit removes the mark, since it shows that the row was held.

use super::{Moment, Stop, grace, margin, pause};
use diesel::result::Error as DieselError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The state that the tasks which renew, watch and end a held row share.
#[derive(Debug)]
pub struct Hold {
    state: Mutex<State>,
    since: Instant,
    /// The time that a renewal lasts.
    pub(crate) ttl: Duration,
    /// Wakes the task that watches.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    until: Moment,
    is_lost: bool,
    phase: Phase,
    /// The number of statements that end the hold and were not answered yet.
    endings: usize,
    /// The time by which the body must have returned, after a statement that ended the hold in a
    /// transaction. The answer to the commit may never arrive, even if other connections work.
    body_deadline: Option<Instant>,
    /// The last transaction in which the hold was ended.
    inside: Inside,
    /// Why the last renewal failed.
    reason: Option<DieselError>,
}

/// A transaction of the caller's in which the hold was ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inside {
    pub(crate) transaction: i64,
    /// `true` if it was ended below a savepoint.
    pub(crate) is_nested: bool,
}

/// How far this process has ended the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Held,
    /// Ended at this time in a transaction of the caller's, which may still be rolled back.
    InTransaction(Instant),
    /// That transaction was rolled back, so that it is held as before.
    RolledBack,
    Ended,
}

impl Phase {
    /// Returns `true` if the body has ended the hold, and no rollback has undone that so far.
    pub(crate) const fn is_complete(self) -> bool {
        matches!(self, Self::InTransaction(_) | Self::Ended)
    }
}

impl Hold {
    /// A hold until then, whose renewals last for `ttl`.
    pub(crate) fn new(until: Moment, ttl: Duration) -> Self {
        Self {
            state: Mutex::new(State {
                until,
                is_lost: false,
                phase: Phase::Held,
                endings: 0,
                body_deadline: None,
                inside: Inside::default(),
                reason: None,
            }),
            since: Instant::now(),
            ttl,
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Records a renewal: the row lasts for this long from then on.
    ///
    /// A whole ttl never shortens the hold. Less than that is what the row says, such as where a
    /// trigger or the column's type limits it.
    pub(crate) fn renewed(&self, sent: Moment, lasts: Duration) {
        let (mut state, until) = (self.state(), sent.plus(lasts));
        state.reason = None;
        if lasts >= self.ttl {
            state.until.extend(until);
            return;
        }
        state.until = until;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Marks the hold as lost.
    pub(crate) fn lose(&self) {
        let mut state = self.state();
        state.is_lost |= state.phase != Phase::Ended;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records the outcome of the transaction that ended the hold at this time, unless another one
    /// has ended it since.
    pub(crate) fn settle(&self, since: Instant, is_committed: bool) {
        let mut state = self.state();
        if state.phase == Phase::InTransaction(since) {
            if is_committed {
                state.phase = Phase::Ended;
            } else {
                (state.phase, state.body_deadline) = (Phase::RolledBack, None);
            }
            // After a commit, a refused renewal does not mean that the row was lost.
            state.is_lost &= !is_committed;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub(crate) fn record_renewal_error(&self, error: DieselError) {
        self.state().reason = Some(error);
    }

    pub(crate) fn reason(&self) -> Option<DieselError> {
        self.state().reason.take()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase
    }

    /// Records that a statement which ends the hold is being sent, until the returned value is
    /// dropped.
    pub(crate) fn ending(&self) -> Ending<'_> {
        self.state().endings += 1;
        Ending(self)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state().is_lost
    }

    /// When others can take the row.
    pub(crate) fn expires(&self) -> Instant {
        self.state().until.steady
    }

    /// The time by which the body must have stopped.
    pub(crate) fn deadline(&self) -> Instant {
        let expires = self.expires();
        expires.checked_sub(margin(self.ttl)).unwrap_or(expires)
    }

    /// When to renew again: as planned, unless the row does not last for long enough after that.
    pub(crate) fn next_renewal(&self, planned: Instant, every: Duration) -> Instant {
        let (now, deadline) = (Instant::now(), self.deadline());
        if planned + every / 2 <= deadline {
            return planned;
        }
        let half = deadline.saturating_duration_since(now) / 2;
        planned.min(now + half.max(pause(every)))
    }

    pub(crate) fn body_deadline(&self) -> Option<Instant> {
        self.state().body_deadline
    }

    pub(crate) fn inside(&self) -> Inside {
        self.state().inside
    }

    /// Returns `true` if others can take the row by now.
    pub(crate) fn is_expired(&self) -> bool {
        self.state().until.is_over_within(Duration::ZERO)
    }

    /// Returns `true` if this process must no longer rely on the hold.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state();
        state.is_lost || state.phase == Phase::Ended || state.until.is_over_within(Duration::ZERO)
    }

    pub(crate) fn stop(&self) -> Option<Stop> {
        let state = self.state();
        let is_late = || state.until.is_over_within(margin(self.ttl));
        let is_held = matches!(state.phase, Phase::Held | Phase::RolledBack);
        match state.body_deadline {
            // A refused renewal may come before the answer of the statement that ended the hold.
            None if is_held && state.endings > 0 => is_late().then_some(Stop::Unanswered),
            _ if is_held => (state.is_lost || is_late()).then_some(Stop::Lost),
            // It may be asked again in the transaction that has ended the hold.
            Some(by) => (Instant::now() >= by).then_some(Stop::Unanswered),
            None => None,
        }
    }

    /// Resolves at the next change. Enable it before reading the state.
    pub(crate) fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }
}

/// A statement that ends the hold and was not answered yet. There can be several, such as when a
/// caller has dropped one.
pub(crate) struct Ending<'h>(&'h Hold);

impl Ending<'_> {
    /// The statement has ended the hold: inside an open transaction, or for good.
    pub(crate) fn done(self, inside: Option<Inside>) {
        let mut state = self.0.state();
        (state.phase, state.body_deadline) = (Phase::Ended, None);
        if let Some(inside) = inside {
            let now = Instant::now();
            (state.phase, state.inside) = (Phase::InTransaction(now), inside);
            // A limit beyond the clock's range never comes.
            state.body_deadline = now.checked_add(grace(self.0.ttl));
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state().endings -= 1;
        // A task that watches has a new deadline.
        self.0.changed.notify_waiters();
    }
}

#[cfg(all(test, feature = "diesel-async"))]
mod walk;

#[cfg(all(test, feature = "diesel-async"))]
mod tests {
    use super::{Hold, Inside, Moment, Phase};
    use crate::rows::{Stop, UNANSWERED};
    use std::time::Duration;
    use tokio::time::{Instant, advance};

    const TTL: Duration = Duration::from_secs(5);

    fn hold() -> Hold {
        Hold::new(Moment::now().plus(TTL), TTL)
    }

    /// A second statement in the transaction that has ended the hold is refused.
    #[tokio::test(start_paused = true)]
    async fn work_that_ends_twice_must_return_as_if_it_had_ended_once() {
        let hold = hold();
        hold.ending().done(Some(Inside::default()));
        let by = hold.body_deadline();
        assert!(by.is_some());
        let again = hold.ending();
        advance(TTL).await;
        assert_eq!(hold.stop(), None);
        drop(again);
        assert_eq!(hold.body_deadline(), by);
        assert_eq!(UNANSWERED, TTL * 2);
        advance(TTL).await;
        assert_eq!(hold.stop(), Some(Stop::Unanswered));
    }

    /// A caller gives up one statement and sends another: the answers come in any order.
    #[tokio::test(start_paused = true)]
    async fn of_two_statements_on_their_way_the_one_that_ended_the_hold_counts() {
        for is_first in [true, false] {
            let hold = hold();
            let (one, other) = (hold.ending(), hold.ending());
            let (done, failed) = if is_first { (one, other) } else { (other, one) };
            done.done(None);
            drop(failed);
            assert_eq!((hold.phase(), hold.stop()), (Phase::Ended, None));
            advance(TTL).await;
            assert_eq!(hold.stop(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_lasts_for_less_is_renewed_earlier() {
        let (hold, now) = (hold(), Instant::now());
        let next = |planned: u64, every: u64| {
            let planned = now + Duration::from_millis(planned);
            let next = hold.next_renewal(planned, Duration::from_millis(every));
            (next - now).as_millis()
        };
        // The ttl is 5 s, and half a second of it the margin.
        assert_eq!([next(2_500, 2_500), next(3_500, 2_000)], [2_500, 3_500]);
        assert_eq!([next(3_501, 2_000), next(2_000, 6_000)], [2_250, 2_000]);
        hold.renewed(Moment::now(), Duration::from_millis(1_500));
        assert_eq!([next(2_000, 2_000), next(400, 2_000)], [500, 400]);
        hold.renewed(Moment::now(), Duration::ZERO);
        assert_eq!(next(2_000, 2_000), 500);
    }
}
