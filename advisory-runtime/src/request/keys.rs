//! The keys of a request.

use crate::key::{Key, LockKey};

/// The keys of one request. One key, the common case, needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    One([Key; 1]),
    Many(Vec<Key>),
}

impl std::ops::Deref for Keys {
    type Target = [Key];

    fn deref(&self) -> &[Key] {
        match self {
            Self::One(key) => key,
            Self::Many(keys) => keys,
        }
    }
}

/// One of several keys, with its pattern.
#[doc(hidden)]
pub fn keyed<K: LockKey + ?Sized>(key: &K) -> (Key, &'static str) {
    (key.key(), key.pattern())
}
