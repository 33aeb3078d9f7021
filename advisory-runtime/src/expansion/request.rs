//! The requests of an attribute's keys, which [`Request::new`] cannot make: their pattern is not
//! that of a type.
#![allow(missing_docs, reason = "for the expansion alone")]

use crate::{Error, Key, LockKey, Request};

#[cfg_attr(debug_assertions, track_caller)]
pub fn one(pattern: &'static str, key: Key) -> Request {
    Request::one(pattern, key)
}

#[cfg_attr(debug_assertions, track_caller)]
pub fn many(patterns: &'static str, keys: impl Into<Vec<Key>>) -> Request {
    Request::many(patterns, keys)
}

#[cfg_attr(debug_assertions, track_caller)]
pub fn each<const N: usize>(keys: [(Key, &'static str); N]) -> Request {
    Request::each(keys)
}

#[allow(clippy::missing_errors_doc, reason = "for the expansion alone")]
#[cfg_attr(debug_assertions, track_caller)]
pub fn counted<K: LockKey>(
    keys: impl IntoIterator<Item = K>,
    written: &'static str,
    max: usize,
) -> Result<Request, Error> {
    Request::counted(keys, written, max)
}
