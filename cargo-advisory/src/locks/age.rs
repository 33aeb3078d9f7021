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
    let ages = waiters.chain(holders);
    let ages = ages.map(|(at_least, at_most)| compared(at_least, at_most, bound));
    ages.max().unwrap_or(Age::Younger)
}

/// Compares the least and, if it is known, the greatest possible age with a bound.
fn compared(at_least: Duration, at_most: Option<Duration>, bound: Duration) -> Age {
    if at_least >= bound {
        Age::Older
    } else if at_most.is_some_and(|age| age < bound) {
        Age::Younger
    } else {
        Age::Unknown
    }
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

#[cfg(test)]
mod tests {
    use super::{Age, compared};
    use std::time::Duration;

    #[test]
    fn an_age_is_known_if_the_bound_is_not_between_its_limits() {
        for (at_least, at_most, age) in [
            (0, None, Age::Unknown),
            (4, None, Age::Unknown),
            (5, None, Age::Older),
            (0, Some(4), Age::Younger),
            (4, Some(5), Age::Unknown),
            (4, Some(4), Age::Younger),
            (5, Some(5), Age::Older),
            // The transaction is older than the lock.
            (6, Some(2), Age::Older),
        ] {
            let [at_least, bound] = [at_least, 5].map(Duration::from_secs);
            let found = compared(at_least, at_most.map(Duration::from_secs), bound);
            assert_eq!(found, age, "{at_least:?} {at_most:?}");
        }
    }
}
