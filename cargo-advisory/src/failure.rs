//! Failures of the command, and their exit codes.

use std::fmt;

/// Stops the command. A mistake that a check finds is not a failure: see `finding`.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Wrong use or unreadable input.
    Input(String),
    /// `cargo build` failed, and has printed why.
    Cargo(u8),
}

impl Failure {
    /// Says what is wrong with a file.
    pub(crate) fn file(path: &std::path::Path, why: impl fmt::Display) -> Self {
        Self::Input(format!("`{}`: {why}", path.display()))
    }

    /// Says that a file cannot be read.
    pub(crate) fn unread(path: &std::path::Path, error: impl fmt::Display) -> Self {
        Self::Input(format!("cannot read `{}`: {error}", path.display()))
    }

    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Cargo(code) => *code,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(message) => f.write_str(message),
            Self::Cargo(_) => f.write_str("`cargo build` failed"),
        }
    }
}
