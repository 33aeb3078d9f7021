//! The lock of an error: its name in messages, and its keys for a query for its holders.

use crate::key::Key;
use std::borrow::Cow;
use std::fmt;

/// The key pattern or, without one, the first key.
pub(crate) fn lock_name(pattern: &'static str, keys: &[Key]) -> Cow<'static, str> {
    match keys {
        [first] if pattern.is_empty() => first.to_string().into(),
        [first, more @ ..] if pattern.is_empty() => {
            format!("{first} and {} more", more.len()).into()
        }
        _ => pattern.into(),
    }
}

/// The lock that a call did not get, for [`monitor::holders`](crate::monitor::holders).
#[derive(Clone)]
pub struct BusyLock(Box<[Key]>);

impl BusyLock {
    pub(crate) fn new(keys: &[Key]) -> Self {
        Self(keys.into())
    }

    pub(crate) const fn keys(&self) -> &[Key] {
        &self.0
    }
}

/// Without keys: a number can be personal data.
impl fmt::Debug for BusyLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyLock").finish_non_exhaustive()
    }
}
