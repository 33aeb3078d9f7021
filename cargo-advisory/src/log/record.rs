//! One message of the server's log, in any of the three formats.

use super::time::Time;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) time: Option<Time>,
    pub(super) pid: Option<i32>,
    pub(super) user: Option<String>,
    pub(super) database: Option<String>,
    pub(super) application: Option<String>,
    /// True for `ERROR`, `FATAL` and `PANIC`, which end the statement.
    pub(super) is_error: bool,
    /// Its severity, or the name of its part, if it is in another language than English.
    pub(super) foreign_tag: Option<String>,
    pub(super) message: String,
    pub(super) detail: String,
    pub(super) statement: String,
}

/// The server writes `DEBUG` for all five levels.
pub(super) const SEVERITIES: [&str; 8] = [
    "DEBUG", "LOG", "INFO", "NOTICE", "WARNING", "ERROR", "FATAL", "PANIC",
];

/// Returns `true` if a message of this severity ends its statement.
pub(super) fn is_error(severity: &str) -> bool {
    matches!(severity, "ERROR" | "FATAL" | "PANIC")
}

/// The severity if it is not an English one.
pub(super) fn foreign(severity: &str) -> Option<String> {
    let is_english = SEVERITIES.contains(&severity);
    (!is_english).then(|| severity.to_owned())
}
