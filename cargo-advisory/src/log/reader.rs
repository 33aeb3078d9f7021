//! Reads records from lines in the server's three formats. `jsonlog` has one JSON object per line.

use serde_json::Value;

use super::record::{Record, Time, foreign, is_error};
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
    let some = |member: &str| value.get(member).and_then(Value::as_str).map(str::to_owned);
    let text = |member: &str| some(member).unwrap_or_default();
    let severity = some("error_severity")?;
    let pid = value.get("pid").and_then(Value::as_i64);
    Some(Record {
        time: Time::find(&text("timestamp")),
        pid: pid.and_then(|pid| i32::try_from(pid).ok()),
        user: some("user"),
        database: some("dbname"),
        application: some("application_name"),
        is_error: is_error(&severity),
        foreign_tag: foreign(&severity),
        message: text("message"),
        detail: text("detail"),
        statement: text("statement"),
    })
}
