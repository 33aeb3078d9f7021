//! The rows that a worker holds, and the number that it may claim.

use crate::claim::mutex::locked;
use crate::claim::table::Claim;
use std::any::TypeId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// The running time of the rows that are fetched ahead by default. A claim takes less time even on
/// a slow network, and an idle worker elsewhere misses little work.
const AHEAD: Duration = Duration::from_millis(100);
/// The most rows that are fetched ahead by default.
const MOST_AHEAD: usize = 1_000;
/// The weight of a new body in the mean of their times.
const WEIGHT: f64 = 0.125;

/// The number of rows that a worker holds: those that wait, run, or are being ended.
#[derive(Debug, Default)]
pub(super) struct HeldRows {
    count: AtomicUsize,
    /// The number of held rows that had an expired claim.
    expired: AtomicUsize,
    /// Notified when the worker stops holding a row.
    pub(super) ended: Notify,
}

impl HeldRows {
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns `true` if the worker holds a row that had an expired claim.
    pub(super) fn has_expired(&self) -> bool {
        self.expired.load(Ordering::Acquire) > 0
    }

    /// Counts one more row; with a permit, one that had an expired claim.
    pub(super) fn add(self: &Arc<Self>, permit: Option<ExpiredRowPermit>) -> CountGuard {
        self.count.fetch_add(1, Ordering::AcqRel);
        if permit.is_some() {
            self.expired.fetch_add(1, Ordering::AcqRel);
        }
        let rows = Arc::clone(self);
        CountGuard { rows, permit }
    }
}

/// Counts one row as held until dropped.
pub(super) struct CountGuard {
    rows: Arc<HeldRows>,
    permit: Option<ExpiredRowPermit>,
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        if self.permit.take().is_some() {
            self.rows.expired.fetch_sub(1, Ordering::AcqRel);
        }
        self.rows.count.fetch_sub(1, Ordering::AcqRel);
        self.rows.ended.notify_one();
    }
}

/// The permit to run a row with an expired claim. Such a row may have killed its process, so a
/// process runs one row of each type at a time.
pub(super) struct ExpiredRowPermit(TypeId);

/// The types of row whose permit is in use.
static IN_USE: Mutex<Vec<TypeId>> = Mutex::new(Vec::new());

impl ExpiredRowPermit {
    /// Returns `None` while another row of the type has the permit.
    pub(super) fn try_new<T: Claim>() -> Option<Self> {
        let mut in_use = locked(&IN_USE);
        let row = TypeId::of::<T>();
        if in_use.contains(&row) {
            return None;
        }
        in_use.push(row);
        Some(Self(row))
    }
}

impl Drop for ExpiredRowPermit {
    fn drop(&mut self) {
        locked(&IN_USE).retain(|row| *row != self.0);
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BodyTimes {
    /// The mean time of a body, in seconds.
    mean: Option<f64>,
    /// `true` if rows that were fetched ahead were released after the last body returned, because
    /// those that run take long.
    pub(super) has_long_body: bool,
}

impl BodyTimes {
    pub(super) fn record(&mut self, body: Duration) {
        let time = body.as_secs_f64();
        let mean = self.mean.unwrap_or(time);
        self.mean = Some((time - mean).mul_add(WEIGHT, mean));
        self.has_long_body = false;
    }

    /// Returns the number of rows that this many slots run in the time of [`AHEAD`].
    pub(super) fn ahead(self, concurrency: usize) -> usize {
        let Some(mean) = self.mean else {
            return 0;
        };
        let slots = u32::try_from(concurrency).unwrap_or(u32::MAX);
        let rows = AHEAD.as_secs_f64() / mean.max(1e-9) * f64::from(slots);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates"
        )]
        let rows = rows as usize;
        rows.min(MOST_AHEAD)
    }
}

/// Returns the most rows to claim now.
///
/// `ahead` rows are claimed in addition to those that run. They are claimed in two halves, so that
/// one half is claimed while the other one runs and ends.
pub(super) fn wanted(
    concurrency: usize,
    ahead: usize,
    held: usize,
    running: usize,
    waiting: usize,
) -> usize {
    let all = concurrency + ahead;
    let free = all.saturating_sub(held);
    let idle = concurrency.saturating_sub(running + waiting);
    if ahead == 0 {
        return free;
    }
    let is_due = idle > 0 || waiting <= ahead / 2;
    // A claim of few rows costs as much as one of many, and rows that are being ended soon make
    // room for more.
    let is_worth = free >= all / 4 || running + waiting >= held;
    if !is_due || !is_worth {
        return 0;
    }
    free.min(idle.max(all / 2))
}

#[cfg(test)]
mod tests {
    use super::{BodyTimes, wanted};
    use std::time::Duration;

    #[test]
    fn as_much_work_is_fetched_ahead_as_a_tenth_of_a_second_works_off() {
        let ahead = |millis, concurrency| {
            let mut times = BodyTimes::default();
            assert_eq!(times.ahead(concurrency), 0);
            times.record(Duration::from_millis(millis));
            times.ahead(concurrency)
        };
        assert_eq!(ahead(1_000, 9), 0);
        assert_eq!(ahead(1_000, 40), 4);
        assert_eq!(ahead(100, 1), 1);
        assert_eq!([ahead(1, 1), ahead(0, 1)], [100, 1_000]);
        let mut times = BodyTimes::default();
        times.record(Duration::from_millis(1));
        for _ in 0..100 {
            times.record(Duration::from_secs(1));
        }
        assert_eq!(times.ahead(1), 0, "it follows the last ones");
    }

    #[test]
    fn a_claim_fills_the_slots_and_a_part_of_what_is_ahead() {
        // Without rows ahead, each free slot.
        assert_eq!(wanted(4, 0, 0, 0, 0), 4);
        assert_eq!(wanted(4, 0, 3, 2, 0), 1);
        assert_eq!(wanted(4, 0, 4, 4, 0), 0);
        // At first a half, and the other half while that one is being ended.
        assert_eq!(wanted(1, 99, 0, 0, 0), 50);
        assert_eq!(wanted(1, 99, 50, 0, 0), 50);
        assert_eq!(wanted(1, 99, 100, 0, 0), 0);
        assert_eq!(wanted(1, 99, 90, 0, 0), 0, "the ends make room");
        // Rows that wait are filled up when half of them have begun.
        assert_eq!(wanted(10, 20, 30, 10, 20), 0);
        assert_eq!(wanted(10, 20, 21, 10, 11), 0);
        assert_eq!(wanted(10, 20, 20, 10, 10), 10);
        assert_eq!(wanted(1, 1, 1, 1, 0), 1);
        assert_eq!(wanted(100, 1, 100, 100, 0), 1);
    }
}
