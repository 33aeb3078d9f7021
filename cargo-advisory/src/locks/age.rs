//! How old is a lock?

use std::time::Duration;

use advisory_runtime::monitor::{Activity, HolderId, Lock, Locks, State};

/// Whether a waiter has waited that long, or a holder's transaction has been open, or its session has been idle, that long. The server
/// does not record when a lock was granted; it is never older than that.
pub(crate) fn is_older(locks: &Locks, lock: &Lock, bound: Duration) -> bool {
    let waits = lock.waiters.iter().any(|waiter| waiter.waited >= bound);
    let mut holders = lock.holders.iter().filter_map(|holder| match &holder.id {
        HolderId::Prepared { age, .. } => Some(*age),
        HolderId::Backend(pid) => locks
            .backend(*pid)
            .and_then(|backend| age_of(&backend.activity)),
        _ => None,
    });
    waits || holders.any(|age| age >= bound)
}

/// How long its transaction has been open, or the session idle without one; `None` if that is hidden.
fn age_of(activity: &Activity) -> Option<Duration> {
    match activity {
        Activity::Visible {
            transaction_age: Some(age),
            ..
        } => Some(*age),
        Activity::Visible {
            state: State::Idle,
            state_age,
            ..
        } => Some(*state_age),
        _ => None,
    }
}
