//! How long may this process rely on a row that expires on the server?

use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// When a statement was sent, on the clocks of an [`Expiry`]. Both are read before the machine can sleep during the wait for the
/// answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    steady: Instant,
    wall: SystemTime,
}

impl Sent {
    pub(crate) fn now() -> Self {
        Self {
            steady: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// The moment when the statement had waited at the server for this time. It is not later than now, although the server's clock
    /// can have been set meanwhile.
    pub(crate) fn after_wait(self, waited: Duration) -> Self {
        let passed = self.wall.elapsed().unwrap_or_default();
        Self {
            steady: self.steady + waited.min(self.steady.elapsed()),
            wall: self.wall + waited.min(passed),
        }
    }
}

/// An expiry on two clocks: the steady clock stops while the machine sleeps, and the wall clock can be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    steady: Instant,
    wall: SystemTime,
}

impl Expiry {
    /// `ttl` after the statement was sent. The server counts from a later moment.
    pub(crate) fn after(sent: Sent, ttl: Duration) -> Self {
        Self {
            steady: sent.steady + ttl,
            wall: sent.wall + ttl,
        }
    }

    pub(crate) const fn steady(self) -> Instant {
        self.steady
    }

    pub(crate) fn extend(&mut self, renewed: Self) {
        if renewed.steady > self.steady {
            *self = renewed;
        }
    }

    /// Whether either clock says that less than `margin` is left.
    pub(crate) fn is_over_within(self, margin: Duration) -> bool {
        Instant::now() + margin >= self.steady || SystemTime::now() + margin >= self.wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn it_is_over_when_either_clock_says_so() {
        let Some(earlier) = Instant::now().checked_sub(MINUTE * 2) else {
            return;
        };
        let later = Expiry::after(Sent::now(), MINUTE);
        assert!(!later.is_over_within(Duration::ZERO));
        assert!(later.is_over_within(MINUTE));
        // The steady clock stopped while the machine slept.
        let wall = SystemTime::now() - MINUTE;
        assert!(Expiry { wall, ..later }.is_over_within(Duration::ZERO));
        // The wall clock was set back.
        let steady = earlier;
        let mut set_back = Expiry { steady, ..later };
        assert!(set_back.is_over_within(Duration::ZERO));
        set_back.extend(later);
        assert_eq!(set_back.steady(), later.steady());
    }

    #[test]
    fn a_wait_at_the_server_counts_for_no_longer_than_the_answer_took() {
        let sent = Sent::now();
        let expiry = Expiry::after(sent.after_wait(MINUTE), MINUTE);
        assert!(expiry.is_over_within(MINUTE));
    }

    #[test]
    fn a_sleep_before_the_answer_counts() {
        let wall = SystemTime::now() - MINUTE;
        let sent = Sent {
            wall,
            ..Sent::now()
        };
        assert!(Expiry::after(sent, MINUTE).is_over_within(Duration::ZERO));
    }
}
