//! Whether a lock is older than a bound, as far as that is known.

use std::collections::BTreeSet;
use std::time::Duration;

use advisory_runtime::Key;
use advisory_runtime::monitor::{Activity, Holder, HolderId, Lock, Locks};

/// What is known of a lock's age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Age {
    /// It is younger than the bound, or nobody holds it any more.
    Younger,
    /// It may be older.
    Unknown,
    /// It has been held or waited for that long, or the transaction of its holder has been open that long.
    Older,
}

/// Compares a lock's age with a bound. The server does not record when a lock was granted.
pub(crate) fn of(locks: &Locks, lock: &Lock, bound: Duration) -> Age {
    if lock.waiters.iter().any(|waiter| waiter.waited >= bound) {
        return Age::Older;
    }
    let ages = lock.holders.iter().map(|it| of_holder(locks, it, bound));
    ages.max().unwrap_or(Age::Younger)
}

fn of_holder(locks: &Locks, holder: &Holder, bound: Duration) -> Age {
    let is_older = |age: Option<Duration>| age.is_some_and(|age| age >= bound);
    let at_least = holder.held_at_least.or(Some(Duration::ZERO));
    if is_older(at_least) || is_older(transaction_age(locks, holder)) {
        Age::Older
    } else if holder.held_at_most.is_some_and(|age| age < bound) {
        Age::Younger
    } else {
        Age::Unknown
    }
}

/// How long the holder's transaction has been open.
fn transaction_age(locks: &Locks, holder: &Holder) -> Option<Duration> {
    let HolderId::Backend(pid) = holder.id else {
        return None;
    };
    match locks.backend(pid)?.activity {
        Activity::Visible {
            transaction_age, ..
        } => transaction_age,
        _ => None,
    }
}

/// A holder of a lock, by the lock's key, and its process id or the identifier of its prepared transaction.
pub(crate) type HolderOf = (Key, Result<i32, String>);

/// The holders of all locks.
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
