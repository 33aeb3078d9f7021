//! The names that `lock_key!` gives to numbers, for messages in debug builds.

use super::Key;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Empty in a release build.
static PATTERNS: Mutex<BTreeMap<Key, &'static str>> = Mutex::new(BTreeMap::new());

const MOST: usize = 4_096;

/// For the expansion of `lock_key!`: remembers the pattern of the key.
#[must_use]
#[inline]
pub fn named(key: Key, pattern: &'static str) -> Key {
    if cfg!(debug_assertions) {
        let mut patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
        if patterns.len() < MOST {
            patterns.insert(key, pattern);
        }
    }
    key
}

#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub(crate) fn pattern_of(key: Key) -> Option<&'static str> {
    let patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    patterns.get(&key).copied()
}
