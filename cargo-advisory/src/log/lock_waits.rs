//! The total of the waits for one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use advisory_runtime::monitor::Name;
use jiff::SignedDuration;

use super::event::LockId;
use super::time::Time;

#[derive(Default)]
pub(super) struct LockWaits {
    pub(super) names: Vec<Name>,
    pub(super) database: Option<String>,
    pub(super) waits: usize,
    pub(super) total: Duration,
    pub(super) longest: Duration,
    pub(super) cancelled: usize,
    pub(super) deadlocks: usize,
    pub(super) last: Option<Time>,
    /// The processes that held the lock during waits, with the number of those waits.
    pub(super) holders: BTreeMap<i32, usize>,
}

impl LockWaits {
    pub(super) fn end(&mut self, waited: Duration) {
        self.total = self.total.saturating_add(waited);
        self.longest = self.longest.max(waited);
    }
}

/// A wait that has not ended so far.
pub(super) struct OpenWait {
    pub(super) lock: LockId,
    pub(super) waited: Duration,
    pub(super) at: Option<Time>,
    /// The holders that have been counted for this wait.
    pub(super) holders: BTreeSet<i32>,
}

impl OpenWait {
    /// Returns `true` if a message about this lock is about this wait: the wait has grown by the
    /// time that has passed.
    pub(super) fn is_wait(&self, lock: LockId, waited: Duration, time: Option<&Time>) -> bool {
        if self.lock != lock || waited < self.waited {
            return false;
        }
        let Some((now, then)) = time.zip(self.at.as_ref()) else {
            return true;
        };
        let grown = waited.saturating_sub(self.waited);
        let grown = SignedDuration::try_from(grown).unwrap_or(SignedDuration::MAX);
        // `%t` has whole seconds.
        let has_fraction = now.text.contains('.') && then.text.contains('.');
        let most = SignedDuration::from_millis(if has_fraction { 500 } else { 1_500 });
        now.since(then).saturating_sub(grown) <= most
    }

    /// The time for which the session had waited at this moment.
    pub(super) fn until(&self, time: Option<&Time>) -> Duration {
        let times = time.zip(self.at.as_ref());
        let passed = times.and_then(|(now, then)| Duration::try_from(now.since(then)).ok());
        self.waited.saturating_add(passed.unwrap_or_default())
    }
}
