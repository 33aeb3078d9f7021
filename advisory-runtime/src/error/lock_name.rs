//! The lock of an error: its name in messages, and its keys for a query for its holders.

use crate::key::Key;
use std::borrow::Cow;
use std::fmt;

#[derive(Clone, Copy, Debug)]
pub(crate) struct LockName {
    pattern: &'static str,
    first: Option<Key>,
    more: usize,
}

impl LockName {
    pub(crate) fn new(pattern: &'static str, keys: &[Key]) -> Self {
        Self {
            pattern,
            first: keys.first().copied(),
            more: keys.len().saturating_sub(1),
        }
    }

    pub(crate) fn text(self) -> Cow<'static, str> {
        match self.first {
            Some(first) if self.pattern.is_empty() => match self.more {
                0 => first.to_string().into(),
                more => format!("{first} and {more} more").into(),
            },
            _ => self.pattern.into(),
        }
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
