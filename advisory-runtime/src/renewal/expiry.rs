//! How long may this process rely on a row that expires on the server?

use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// An expiry on two clocks: the steady clock stops while the machine sleeps, and the wall clock can be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    steady: Instant,
    wall: SystemTime,
}

impl Expiry {
    /// `ttl` after the statement was sent. The server counts from a later moment.
    pub(crate) fn after(sent: Instant, ttl: Duration) -> Self {
        let passed = sent.elapsed();
        Self {
            steady: sent + ttl,
            wall: SystemTime::now() + ttl.saturating_sub(passed),
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
        let later = Expiry::after(Instant::now(), MINUTE);
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
}
