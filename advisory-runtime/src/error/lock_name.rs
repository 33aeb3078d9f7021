//! The name of a lock in error messages.

use crate::key::Key;
use std::borrow::Cow;

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
