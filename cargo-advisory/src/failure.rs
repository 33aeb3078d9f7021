//! Failures of the command, and their exit codes.

use std::error::Error;
use std::fmt;
use std::path::Path;

use crate::text::one_line;

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

#[derive(Debug)]
pub(crate) enum Failure {
    /// Wrong use or unreadable input.
    Input(String),
    /// `cargo build` failed, and has printed why.
    Cargo(u8),
}

macro_rules! bail {
    ($($message:tt)+) => {
        return Err(crate::failure::Failure::Input(format!($($message)+)))
    };
}
pub(crate) use bail;

impl Failure {
    pub(crate) fn file(path: &Path, why: impl fmt::Display) -> Self {
        Self::Input(format!("`{}`: {why}", path.display()))
    }

    pub(crate) fn unread(path: &Path, error: impl fmt::Display) -> Self {
        Self::Input(format!("cannot read `{}`: {error}", path.display()))
    }

    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Cargo(code) => *code,
        }
    }
}

/// The error with its causes, made safe for a terminal.
impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Input(one_line(&chain(&error)))
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

pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}
