//! Events of waits, for `--follow`.

use std::time::Duration;

use super::event::LockId;

/// An event, for `--follow`.
pub(super) enum Incident {
    Waiting {
        pid: i32,
        lock: LockId,
        waited: Duration,
        holders: Vec<i32>,
    },
    Acquired {
        pid: i32,
        lock: LockId,
        waited: Duration,
    },
    /// With the server's reason, and every lock that the statement requests.
    Cancelled {
        pid: Option<i32>,
        locks: Vec<LockId>,
        waited: Option<Duration>,
        reason: String,
    },
    /// The last of `Waits::deadlocks`.
    Deadlock,
}
