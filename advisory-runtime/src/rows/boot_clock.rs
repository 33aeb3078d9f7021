//! A clock that counts while the machine sleeps, which `Instant` does not.

use std::time::Duration;

/// The time since the machine was started. Nobody can set this clock.
#[cfg(any(target_os = "android", target_os = "linux"))]
pub(super) fn now() -> Duration {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(since.tv_sec).unwrap_or_default(),
        u32::try_from(since.tv_nsec).unwrap_or_default(),
    )
}

/// The wall clock. If it is set forward, holds end early.
#[cfg(not(any(target_os = "android", target_os = "linux")))]
pub(super) fn now() -> Duration {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::now;
    use std::time::Duration;

    /// The kernel's own reading of the same clock, in hundredths of a second. The wall clock is
    /// decades away.
    #[test]
    fn it_counts_from_the_start_of_the_machine() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
            let seconds = text.split(' ').next().and_then(|text| text.parse().ok());
            Duration::from_secs_f64(seconds.unwrap_or_default())
        };
        let tick = Duration::from_millis(10);
        let (before, seen, after) = (uptime(), now(), uptime());
        assert!(
            before <= seen + tick && seen <= after + tick,
            "{before:?} {seen:?} {after:?}"
        );
    }
}
