//! The permits of one key.

use crate::{Database, LockedKey};
use std::collections::HashSet;

/// The three permits of key 42, which never change.
pub const PERMITS: [i64; 3] = [42, -1_895_220_358_444_740_834, -1_987_569_500_528_109_462];

/// The keys that are held, in the order of [`PERMITS`].
pub async fn held(db: &Database) -> Vec<i64> {
    let locks = db.locks().await;
    let keys: HashSet<_> = locks.iter().map(|lock| lock.key).collect();
    let is_held = |key: &i64| keys.contains(&LockedKey::Bigint(*key));
    assert_eq!(keys.len(), locks.len(), "{locks:?}");
    assert!(keys.len() <= PERMITS.iter().filter(|key| is_held(key)).count());
    PERMITS.into_iter().filter(is_held).collect()
}
