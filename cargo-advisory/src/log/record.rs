//! One message of the server's log, in any of the three formats.

use super::time::Time;
use super::{csv_log, json_log, stderr};

/// A message with its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) time: Option<Time>,
    /// The backend that wrote it.
    pub(super) pid: Option<i32>,
    pub(super) user: Option<String>,
    pub(super) database: Option<String>,
    pub(super) application: Option<String>,
    /// Whether it ended the statement: `ERROR`, `FATAL` or `PANIC`.
    pub(super) is_error: bool,
    pub(super) message: String,
    pub(super) detail: String,
    pub(super) statement: String,
}

/// Whether a message of this severity ends its statement.
pub(super) fn is_error(severity: &str) -> bool {
    matches!(severity, "ERROR" | "FATAL" | "PANIC")
}

/// Parses lines into records. The first line that is not empty determines the format.
#[derive(Default)]
pub(super) struct Reader(Option<Form>);

enum Form {
    Stderr(stderr::Reader),
    Csv(csv_log::Reader),
    Json,
}

impl Reader {
    /// Adds a line without its line break, and returns the record that it completes.
    pub(super) fn line(&mut self, line: &str) -> Option<Record> {
        if self.0.is_none() && line.trim().is_empty() {
            return None;
        }
        match self.0.get_or_insert_with(|| Form::of(line)) {
            Form::Stderr(reader) => reader.line(line),
            Form::Csv(reader) => reader.line(line),
            Form::Json => json_log::record(line),
        }
    }

    /// Returns the record that could have been continued by another line.
    pub(super) fn flush(&mut self) -> Option<Record> {
        match &mut self.0 {
            Some(Form::Stderr(reader)) => reader.flush(),
            _ => None,
        }
    }
}

impl Form {
    fn of(line: &str) -> Self {
        if line.starts_with('{') {
            Self::Json
        } else if csv_log::is_csv(line) {
            Self::Csv(csv_log::Reader::default())
        } else {
            Self::Stderr(stderr::Reader::default())
        }
    }
}
