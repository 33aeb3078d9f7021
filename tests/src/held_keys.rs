//! The keys that are held on a database.

use crate::{AdvisoryLock, Database, LockedKey};

/// The keys of all locks. Nobody may wait for one.
pub async fn held(db: &Database) -> Vec<LockedKey> {
    let locks = db.locks().await;
    assert!(locks.iter().all(|lock| lock.granted), "{locks:?}");
    locks.into_iter().map(|lock| lock.key).collect()
}

/// The keys of these locks.
pub fn keys(locks: &[AdvisoryLock]) -> Vec<LockedKey> {
    locks.iter().map(|lock| lock.key).collect()
}
