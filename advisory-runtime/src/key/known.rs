//! The names that `lock_key!` gives to numbers, for messages in debug builds.

use super::Key;
#[cfg(debug_assertions)]
use std::collections::BTreeMap;
#[cfg(debug_assertions)]
use std::sync::{Mutex, PoisonError};

#[cfg(debug_assertions)]
static PATTERNS: Mutex<BTreeMap<Key, &'static str>> = Mutex::new(BTreeMap::new());

#[cfg(debug_assertions)]
const MOST: usize = 4_096;

/// For the expansion of `lock_key!`: remembers the pattern of the key.
#[cfg_attr(
    not(debug_assertions),
    expect(unused_variables, reason = "nothing is noted in a release build")
)]
#[must_use]
#[inline]
pub fn named(key: Key, pattern: &'static str) -> Key {
    #[cfg(debug_assertions)]
    {
        let mut patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
        if patterns.len() < MOST {
            patterns.insert(key, pattern);
        }
    }
    key
}

#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub(crate) fn pattern_of(key: Key) -> Option<&'static str> {
    #[cfg(debug_assertions)]
    {
        let patterns = PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
        patterns.get(&key).copied()
    }
    #[cfg(not(debug_assertions))]
    {
        _ = key;
        None
    }
}
