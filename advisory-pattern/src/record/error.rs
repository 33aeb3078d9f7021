//! Errors of reading a record.

use std::fmt;

/// The reason why bytes that start like a record cannot be read.
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
            Self::Truncated => write!(f, "a record has no end: the file is cut short"),
            Self::Newer(version) => write!(
                f,
                "a record has format {version}, which this reader does not know: update it"
            ),
            Self::Malformed(field) => write!(f, "a record has a wrong field: {field}"),
        }
    }
}

impl std::error::Error for RecordError {}
