//! Errors of reading a lock site's record.

use std::fmt;

use super::format::RECORD_VERSION;

/// Says why bytes that start like a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// The record has no end: the file is cut short.
    Truncated,
    /// The record has a newer format than this reader knows.
    Newer(String),
    /// A field does not have the form that the format requires.
    Malformed(String),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "a lock site's record has no end: the file is cut short"),
            Self::Newer(version) => write!(
                f,
                "a lock site's record has format {version}, and this reader knows up to {RECORD_VERSION}: update it"
            ),
            Self::Malformed(field) => write!(f, "a lock site's record has a wrong field: {field}"),
        }
    }
}

impl std::error::Error for RecordError {}
