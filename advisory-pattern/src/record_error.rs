//! Why can a lock site's record not be read?

use std::fmt;

use crate::RECORD_VERSION;

/// Why bytes that start like a record are none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// The record has no end: the file is cut short.
    Truncated,
    /// The record is of a format that this reader is too old for.
    Newer(String),
    /// A field is not what the format says.
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
