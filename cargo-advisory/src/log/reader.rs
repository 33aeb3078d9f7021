//! Reads records from lines in the server's three formats.

use super::record::Record;
use super::{csv_log, json_log, stderr};

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
        if let Some(record) = object.and_then(json_log::record) {
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
