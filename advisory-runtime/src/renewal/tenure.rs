//! Whether the row is still held, as far as this process knows.

use super::{Expiry, Sent, grace, margin, pause};
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
            grace: grace(ttl),
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

    /// Records that the row says less than was asked for, such as where a trigger has limited it.
    pub(crate) fn shortened(&self, sent: Sent, lasts: Duration) {
        self.state().until = Expiry::after(sent, lasts);
        self.changed.notify_waiters();
    }

    /// Records that the row is not held any more.
    pub(crate) fn lose(&self) {
        let mut state = self.state();
        state.is_lost |= state.end != End::Done;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records how the transaction has ended that ended the tenure at this time. The answer can come after another one has done so.
    pub(crate) fn settle(&self, since: Instant, is_committed: bool) {
        let mut state = self.state();
        if state.end == End::Inside(since) {
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
        let mut state = self.state();
        let end = std::mem::replace(&mut state.end, End::Asked);
        Ending {
            tenure: self,
            end,
            return_by: state.return_by,
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

    /// When to renew again: as planned, unless the row does not last for long enough after that.
    pub(crate) fn next_renewal(&self, planned: Instant, every: Duration) -> Instant {
        let (now, deadline) = (Instant::now(), self.deadline());
        if planned + every / 2 <= deadline {
            return planned;
        }
        let half = deadline.saturating_duration_since(now) / 2;
        planned.min(now + half.max(pause(every)))
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
        match (state.end, state.return_by) {
            (End::Open | End::RolledBack, _) if state.is_lost || is_late() => {
                Some(super::Stop::Lost)
            }
            // A refused renewal may come before the answer of the statement that ended the tenure.
            (End::Asked, None) if is_late() => Some(super::Stop::Unanswered),
            // It may be asked again in the transaction that has ended the tenure.
            (End::Asked | End::Inside(_) | End::Done, Some(by)) if Instant::now() >= by => {
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
        (self.end, self.return_by) = (End::Done, None);
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

#[cfg(all(test, feature = "diesel-async"))]
mod tests {
    use super::{End, Expiry, Sent, Tenure};
    use crate::renewal::{Stop, UNANSWERED};
    use std::time::Duration;
    use tokio::time::{Instant, advance};

    const TTL: Duration = Duration::from_secs(5);
    /// Without the margin.
    const DEADLINE: Duration = Duration::from_millis(4_500);

    fn tenure() -> Tenure {
        Tenure::new(Expiry::after(Sent::now(), TTL), TTL)
    }

    fn settle(tenure: &Tenure, is_committed: bool) {
        tenure.settle(Instant::now(), is_committed);
    }

    /// Just before a time, and at it.
    async fn stops_at<const N: usize>(times: [(Duration, &Tenure); N]) -> [Option<Stop>; N] {
        let mut stops = [None; N];
        let tick = Duration::from_millis(1);
        for ((time, tenure), stop) in times.into_iter().zip(&mut stops) {
            advance(time.saturating_sub(tick)).await;
            assert_eq!(tenure.stop(), None);
            advance(tick).await;
            *stop = tenure.stop();
        }
        stops
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_stopped_before_the_expiry() {
        let open = tenure();
        assert_eq!(stops_at([(DEADLINE, &open)]).await, [Some(Stop::Lost)]);
        assert!(!open.is_over() && !open.is_expired());
        advance(TTL / 10).await;
        assert!(open.is_over() && open.is_expired());
        let asked = tenure();
        let ending = asked.ending();
        let late = stops_at([(DEADLINE, &asked)]).await;
        assert_eq!(late, [Some(Stop::Unanswered)]);
        drop(ending);
        assert_eq!(asked.stop(), Some(Stop::Lost));
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_stopped_if_it_does_not_return_after_the_end() {
        let inside = tenure();
        inside.ending().done(true);
        let late = stops_at([(UNANSWERED, &inside)]).await;
        assert_eq!(late, [Some(Stop::Unanswered)]);
        let done = tenure();
        done.ending().done(false);
        advance(UNANSWERED).await;
        assert_eq!(done.stop(), None);
    }

    /// A renewal that comes between the commit and its answer is refused.
    #[tokio::test(start_paused = true)]
    async fn a_commit_shows_that_a_refused_renewal_lost_nothing() {
        for is_committed in [true, false] {
            let tenure = tenure();
            tenure.ending().done(true);
            tenure.lose();
            assert_eq!(tenure.stop(), None);
            settle(&tenure, is_committed);
            assert_eq!(tenure.is_lost(), !is_committed);
            let (end, stop) = if is_committed {
                (End::Done, None)
            } else {
                (End::RolledBack, Some(Stop::Lost))
            };
            assert_eq!((tenure.end(), tenure.stop()), (end, stop));
        }
        // Nothing is lost by a rollback itself, nor by an answer for another transaction.
        let kept = tenure();
        kept.ending().done(true);
        settle(&kept, false);
        assert!(!kept.is_lost() && !kept.is_over());
        settle(&kept, true);
        assert_eq!(kept.end(), End::RolledBack);
    }

    /// It was asked for an earlier transaction, which was rolled back.
    #[tokio::test(start_paused = true)]
    async fn an_answer_about_another_transaction_changes_nothing() {
        let tenure = tenure();
        let earlier = Instant::now();
        advance(Duration::from_millis(1)).await;
        tenure.ending().done(true);
        let now = tenure.end();
        for is_committed in [false, true] {
            tenure.settle(earlier, is_committed);
            assert_eq!(tenure.end(), now);
        }
    }

    /// A second statement in the transaction that has ended the tenure is refused.
    #[tokio::test(start_paused = true)]
    async fn work_that_ends_twice_must_return_as_if_it_had_ended_once() {
        let tenure = tenure();
        tenure.ending().done(true);
        let by = tenure.return_by();
        assert!(by.is_some());
        let again = tenure.ending();
        advance(TTL).await;
        assert_eq!(tenure.stop(), None);
        drop(again);
        assert_eq!(tenure.return_by(), by);
        assert_eq!(UNANSWERED, TTL * 2);
        let late = stops_at([(TTL, &tenure)]).await;
        assert_eq!(late, [Some(Stop::Unanswered)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_lasts_for_less_is_renewed_earlier() {
        let (tenure, now) = (tenure(), Instant::now());
        let next = |planned: u64, every: u64| {
            let planned = now + Duration::from_millis(planned);
            let next = tenure.next_renewal(planned, Duration::from_millis(every));
            (next - now).as_millis()
        };
        // The ttl is 5 s, and half a second of it the margin.
        assert_eq!([next(2_500, 2_500), next(3_500, 2_000)], [2_500, 3_500]);
        assert_eq!([next(3_501, 2_000), next(2_000, 6_000)], [2_250, 2_000]);
        tenure.shortened(Sent::now(), Duration::from_millis(1_500));
        assert_eq!([next(2_000, 2_000), next(400, 2_000)], [500, 400]);
        tenure.shortened(Sent::now(), Duration::ZERO);
        assert_eq!(next(2_000, 2_000), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenure_that_has_ended_cannot_be_lost() {
        let done = tenure();
        done.ending().done(false);
        done.lose();
        assert!(!done.is_lost() && done.is_over());
        let open = tenure();
        open.lose();
        assert!(open.is_lost() && open.is_over());
        assert_eq!(open.stop(), Some(Stop::Lost));
        open.lose();
        assert!(open.is_lost());
    }
}
