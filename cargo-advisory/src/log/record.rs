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
    /// Its severity, or the name of its part, in another language than English.
    pub(super) foreign_tag: Option<String>,
    pub(super) message: String,
    pub(super) detail: String,
    pub(super) statement: String,
}

/// Whether a message of this severity ends its statement.
pub(super) fn is_error(severity: &str) -> bool {
    matches!(severity, "ERROR" | "FATAL" | "PANIC")
}

/// A severity that is not one of the English ones.
pub(super) fn foreign(severity: &str) -> Option<String> {
    let is_english = stderr::SEVERITIES.contains(&severity);
    (!is_english).then(|| severity.to_owned())
}

/// Parses lines into records. Each record shows its format: a log can begin, or be cut, in the middle of one.
#[derive(Default)]
pub(super) struct Reader {
    stderr: stderr::Reader,
    csv: csv_log::Reader,
}

impl Reader {
    /// Adds a line without its line break, and passes on the records that it completes.
    pub(super) fn line(&mut self, line: &str, take: &mut impl FnMut(Record)) {
        if csv_log::is_csv(line) {
            self.csv.restart();
        }
        if self.csv.is_inside() || csv_log::is_csv(line) {
            self.flush().into_iter().for_each(&mut *take);
            self.csv.line(line).into_iter().for_each(take);
            return;
        }
        // A statement can have a line that starts as an object.
        let json = line
            .starts_with('{')
            .then(|| json_log::record(line))
            .flatten();
        if let Some(record) = json {
            self.flush().into_iter().for_each(&mut *take);
            take(record);
            return;
        }
        self.stderr.line(line).into_iter().for_each(take);
    }

    /// Returns the record that could have been continued by another line.
    pub(super) fn flush(&mut self) -> Option<Record> {
        self.stderr.flush()
    }
}
