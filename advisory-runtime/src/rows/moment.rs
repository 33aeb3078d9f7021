//! A moment on two clocks: when a statement was sent, or until when this process may rely on a row
//! that expires on the server.

use std::time::Duration;
use tokio::time::Instant;

/// A moment on two clocks. The steady clock is that of the timers, and stops while the machine
/// sleeps; the other does not stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) steady: Instant,
    boot: Duration,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            steady: Instant::now(),
            boot: boot_now(),
        }
    }

    /// The expiry of a row, if this is when its statement was sent: the machine can sleep during
    /// the wait for the answer, and the server counts from a later moment.
    pub(crate) fn plus(self, ttl: Duration) -> Self {
        Self {
            steady: self.steady + ttl,
            boot: self.boot.saturating_add(ttl),
        }
    }

    /// The moment when a statement that was sent at this one had waited at the server for this
    /// time. It is not later than now, although the server's clock can have been set meanwhile.
    pub(crate) fn after_wait(self, waited: Duration) -> Self {
        let passed = boot_now().saturating_sub(self.boot);
        Self {
            steady: self.steady + waited.min(self.steady.elapsed()),
            boot: self.boot + waited.min(passed),
        }
    }

    pub(crate) fn extend(&mut self, renewed: Self) {
        if renewed.steady > self.steady {
            *self = renewed;
        }
    }

    /// Returns `true` if less than `margin` is left by either clock.
    pub(crate) fn is_over_within(self, margin: Duration) -> bool {
        Instant::now() + margin >= self.steady || boot_now() + margin >= self.boot
    }
}

/// The time since the machine was started. Nobody can set this clock.
#[cfg(any(target_os = "android", target_os = "linux"))]
fn boot_now() -> Duration {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(since.tv_sec).unwrap_or_default(),
        u32::try_from(since.tv_nsec).unwrap_or_default(),
    )
}

/// The wall clock. If it is set forward, holds end early.
#[cfg(not(any(target_os = "android", target_os = "linux")))]
fn boot_now() -> Duration {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default()
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
        let later = Moment::now().plus(MINUTE);
        assert!(!later.is_over_within(Duration::ZERO));
        assert!(later.is_over_within(MINUTE));
        // The steady clock stopped while the machine slept.
        let boot = boot_now();
        assert!(Moment { boot, ..later }.is_over_within(Duration::ZERO));
        let boot = boot + MINUTE / 4;
        assert!(Moment { boot, ..later }.is_over_within(MINUTE / 2));
        let steady = earlier;
        let mut renewed = Moment { steady, ..later };
        assert!(renewed.is_over_within(Duration::ZERO));
        renewed.extend(later);
        assert_eq!(renewed.steady, later.steady);
    }

    #[test]
    fn a_server_side_wait_counts_at_most_as_long_as_the_answer() {
        let sent = Moment::now();
        let expiry = sent.after_wait(MINUTE).plus(MINUTE);
        assert!(expiry.is_over_within(MINUTE));
        assert!(expiry.steady >= sent.plus(MINUTE).steady);
    }

    #[test]
    fn a_server_side_wait_does_not_count() {
        let now = Moment::now();
        let Some(steady) = now.steady.checked_sub(MINUTE) else {
            return;
        };
        let boot = now.boot.saturating_sub(MINUTE);
        if boot.is_zero() {
            return;
        }
        let waited = Moment { steady, boot }.after_wait(MINUTE);
        assert_eq!((waited.steady, waited.boot), (now.steady, now.boot));
    }

    #[test]
    fn a_sleep_before_the_answer_counts() {
        let now = Moment::now();
        let boot = now.boot.saturating_sub(MINUTE);
        let sent = Moment { boot, ..now };
        assert!(sent.plus(MINUTE).is_over_within(Duration::ZERO));
    }

    /// The kernel's own reading of the same clock, in hundredths of a second. The wall clock is
    /// decades away.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_boot_clock_counts_from_the_start_of_the_machine() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
            let seconds = text.split(' ').next().and_then(|text| text.parse().ok());
            Duration::from_secs_f64(seconds.unwrap_or_default())
        };
        let tick = Duration::from_millis(10);
        let (before, seen, after) = (uptime(), boot_now(), uptime());
        assert!(
            before <= seen + tick && seen <= after + tick,
            "{before:?} {seen:?} {after:?}"
        );
    }
}
