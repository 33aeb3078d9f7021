//! The severities of the server's messages.

/// The server writes `DEBUG` for all five levels.
pub(super) const SEVERITIES: [&str; 8] = [
    "DEBUG", "LOG", "INFO", "NOTICE", "WARNING", "ERROR", "FATAL", "PANIC",
];

/// Returns whether a message of this severity ends its statement.
pub(super) fn is_error(severity: &str) -> bool {
    matches!(severity, "ERROR" | "FATAL" | "PANIC")
}

/// A severity that is not one of the English ones.
pub(super) fn foreign(severity: &str) -> Option<String> {
    let is_english = SEVERITIES.contains(&severity);
    (!is_english).then(|| severity.to_owned())
}
