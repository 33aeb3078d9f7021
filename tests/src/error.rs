//! The error when no database is available: its cause, and what to do about it.

use std::fmt;

/// No database is available. The text says why, and what to do.
#[derive(Clone, PartialEq, Eq)]
pub struct HarnessError(String);

impl HarnessError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text itself, so that returning this error from `main` prints it readably.
impl fmt::Debug for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HarnessError {}
