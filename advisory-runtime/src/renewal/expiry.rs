//! Until when may this process rely on a row that expires on the server?

use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A time on two clocks: the steady one stops while a machine sleeps, and the wall clock can be set.
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

    /// The later of the two: a renewal never shortens.
    pub(crate) fn extended(self, renewed: Self) -> Self {
        if renewed.steady > self.steady {
            renewed
        } else {
            self
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
        // The machine has slept: only the wall's clock went on.
        let slept = Expiry {
            wall: SystemTime::now() - MINUTE,
            ..later
        };
        assert!(slept.is_over_within(Duration::ZERO));
        // Somebody has set the wall's clock back.
        let set_back = Expiry {
            steady: earlier,
            ..later
        };
        assert!(set_back.is_over_within(Duration::ZERO));
        assert_eq!(later.extended(set_back).steady(), later.steady());
        assert_eq!(set_back.extended(later).steady(), later.steady());
    }
}
