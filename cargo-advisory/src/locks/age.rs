//! Compares the age of a lock with a bound, as far as the age is known.

use std::collections::BTreeSet;
use std::time::Duration;

use advisory_runtime::Key;
use advisory_runtime::monitor::{Activity, Holder, HolderId, Lock, Locks};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Age {
    /// It is younger than the bound, or nobody holds it.
    Younger,
    /// It may be older.
    Unknown,
    /// It has been held or waited for that long, or its holder's transaction has been open that
    /// long.
    Older,
}

/// Compares a lock's age with a bound. The server does not record when a lock was granted.
pub(crate) fn of(locks: &Locks, lock: &Lock, bound: Duration) -> Age {
    let waiters = lock.waiters.iter().map(|it| (it.waited, Some(it.waited)));
    let holders = lock.holders.iter().map(|holder| {
        let at_least = holder.held_at_least.max(transaction_age(locks, holder));
        (at_least.unwrap_or_default(), holder.held_at_most)
    });
    let ages = waiters.chain(holders).map(|ages| match ages {
        (at_least, _) if at_least >= bound => Age::Older,
        (_, Some(at_most)) if at_most < bound => Age::Younger,
        _ => Age::Unknown,
    });
    ages.max().unwrap_or(Age::Younger)
}

/// The time that the holder's transaction has been open.
fn transaction_age(locks: &Locks, holder: &Holder) -> Option<Duration> {
    let HolderId::Backend(pid) = holder.id else {
        return None;
    };
    match &locks.backend(pid)?.activity {
        Activity::Visible {
            transaction_age: age,
            ..
        } => *age,
        _ => None,
    }
}

/// A holder of a lock: the lock's key, and the process id or the identifier of a prepared
/// transaction.
pub(crate) type HolderOf = (Key, Result<i32, String>);

pub(crate) fn holders(locks: &Locks) -> BTreeSet<HolderOf> {
    locks.locks.iter().flat_map(holders_of).collect()
}

pub(crate) fn holders_of(lock: &Lock) -> impl Iterator<Item = HolderOf> {
    let ids = lock.holders.iter().filter_map(|holder| match &holder.id {
        HolderId::Backend(pid) => Some(Ok(*pid)),
        HolderId::Prepared { gid, .. } => Some(Err(gid.clone())),
        _ => None,
    });
    ids.map(|id| (lock.key, id))
}
