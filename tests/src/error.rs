//! Why is there no database, and what should the reader do about it?

use std::fmt;

/// There is no database to run on. The text says why, and what to do.
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

/// The text itself, so that `main` returning this error prints it readably.
impl fmt::Debug for HarnessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HarnessError {}
