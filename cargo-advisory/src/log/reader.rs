//! Reads records from lines in the server's three formats. `jsonlog` has one JSON object per line.

use serde_json::Value;

use super::record::Record;
use super::{csv_log, stderr};

/// Parses lines into records. The format is recognized for each record, because a log can begin or
/// be cut in the middle of one.
#[derive(Default)]
pub(super) struct Reader {
    stderr: stderr::Reader,
    csv: csv_log::Reader,
}

impl Reader {
    /// Adds a line without its line break, and passes on the records that it completes.
    pub(super) fn line(&mut self, line: &str, take: &mut impl FnMut(Record)) {
        let is_csv = csv_log::is_csv(line);
        if is_csv {
            // The record before this one was truncated.
            self.csv = csv_log::Reader::default();
        }
        if is_csv || self.csv.is_quoted {
            self.flush().into_iter().for_each(&mut *take);
            self.csv.line(line).into_iter().for_each(take);
            return;
        }
        // A statement can have a line that starts like an object.
        let object = Some(line).filter(|line| line.starts_with('{'));
        if let Some(record) = object.and_then(json_record) {
            self.flush().into_iter().for_each(&mut *take);
            take(record);
            return;
        }
        self.stderr.line(line).into_iter().for_each(take);
    }

    pub(super) fn flush(&mut self) -> Option<Record> {
        self.stderr.flush()
    }
}

/// Parses a line of `jsonlog`, of PostgreSQL 15 and later; `None` if the server has not written it.
fn json_record(line: &str) -> Option<Record> {
    let value: Value = serde_json::from_str(line).ok()?;
    Record::of(|_, member| match &value[member] {
        Value::String(text) => Some(text.clone()),
        Value::Number(pid) if member == "pid" => Some(pid.to_string()),
        _ => None,
    })
}
