//! The time for which this process may rely on a row that expires on the server.

use super::boot_clock;
use std::time::Duration;
use tokio::time::Instant;

/// When a statement was sent, on the clocks of an [`Expiry`]. Both are read before the machine can
/// sleep during the wait for the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    steady: Instant,
    boot: Duration,
}

impl Sent {
    pub(crate) fn now() -> Self {
        Self {
            steady: Instant::now(),
            boot: boot_clock::now(),
        }
    }

    pub(crate) const fn steady(self) -> Instant {
        self.steady
    }

    /// The moment when the statement had waited at the server for this time. It is not later than
    /// now, although the server's clock can have been set meanwhile.
    pub(crate) fn after_wait(self, waited: Duration) -> Self {
        let passed = boot_clock::now().saturating_sub(self.boot);
        Self {
            steady: self.steady + waited.min(self.steady.elapsed()),
            boot: self.boot + waited.min(passed),
        }
    }
}

/// An expiry on two clocks. The steady clock is that of the timers, and stops while the machine
/// sleeps; the other does not stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    steady: Instant,
    boot: Duration,
}

impl Expiry {
    /// `ttl` after the statement was sent. The server counts from a later moment.
    pub(crate) fn after(sent: Sent, ttl: Duration) -> Self {
        Self {
            steady: sent.steady + ttl,
            boot: sent.boot.saturating_add(ttl),
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

    /// Returns `true` if less than `margin` is left by either clock.
    pub(crate) fn is_over_within(self, margin: Duration) -> bool {
        Instant::now() + margin >= self.steady || boot_clock::now() + margin >= self.boot
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
        let boot = boot_clock::now();
        assert!(Expiry { boot, ..later }.is_over_within(Duration::ZERO));
        let boot = boot + MINUTE / 4;
        assert!(Expiry { boot, ..later }.is_over_within(MINUTE / 2));
        let steady = earlier;
        let mut renewed = Expiry { steady, ..later };
        assert!(renewed.is_over_within(Duration::ZERO));
        renewed.extend(later);
        assert_eq!(renewed.steady(), later.steady());
    }

    #[test]
    fn a_server_side_wait_counts_at_most_as_long_as_the_answer() {
        let sent = Sent::now();
        let expiry = Expiry::after(sent.after_wait(MINUTE), MINUTE);
        assert!(expiry.is_over_within(MINUTE));
        assert!(expiry.steady() >= Expiry::after(sent, MINUTE).steady());
    }

    #[test]
    fn a_server_side_wait_does_not_count() {
        let now = Sent::now();
        let Some(steady) = now.steady.checked_sub(MINUTE) else {
            return;
        };
        let boot = now.boot.saturating_sub(MINUTE);
        if boot.is_zero() {
            return;
        }
        let waited = Sent { steady, boot }.after_wait(MINUTE);
        assert_eq!((waited.steady, waited.boot), (now.steady, now.boot));
    }

    #[test]
    fn a_sleep_before_the_answer_counts() {
        let now = Sent::now();
        let boot = now.boot.saturating_sub(MINUTE);
        let sent = Sent { boot, ..now };
        assert!(Expiry::after(sent, MINUTE).is_over_within(Duration::ZERO));
    }
}
