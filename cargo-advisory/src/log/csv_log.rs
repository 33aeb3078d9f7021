//! `csvlog`: records of comma-separated values. Quoted values can contain line breaks.

use super::record::{Record, Time};

/// Returns `true` if a line begins a record: with a time, the user and the database in quotes or
/// empty, and the process. Quotes inside a quoted value are doubled, so a quotation of another log
/// is not mistaken for a record.
pub(super) fn is_csv(line: &str) -> bool {
    let Some((time, rest)) = line.split_once(',') else {
        return false;
    };
    let is_time = || Time::find(time).is_some_and(|found| found.text == time);
    let after_pid = || {
        let (pid, rest) = value_end(value_end(rest)?)?.split_once(',')?;
        pid.parse::<u32>().ok().map(|_| rest)
    };
    rest.starts_with(['"', ',']) && is_time() && after_pid().is_some_and(opens_value)
}

/// Returns `true` if the first quotes open a value, as those of the message do. Inside another
/// value they would be an even number, and after those that close a value there is a comma or the
/// line's end.
fn opens_value(text: &str) -> bool {
    let quotes = text.trim_start_matches(|letter| letter != '"');
    let before = &text[..text.len() - quotes.len()];
    let after = quotes.trim_start_matches('"');
    let is_odd = (quotes.len() - after.len()) % 2 == 1;
    let is_first = before.is_empty() || before.ends_with(',');
    is_odd && is_first && !after.is_empty() && !after.starts_with(',')
}

/// The text after the first value and its comma, if the value is empty or in quotes.
fn value_end(text: &str) -> Option<&str> {
    let opening = text.len() - text.trim_start_matches('"').len();
    if opening == 0 {
        return text.strip_prefix(',');
    }
    // After the quote that opens a value, quotes are doubled. An even number is a quotation of a
    // record.
    if opening.is_multiple_of(2) {
        return None;
    }
    let value = &text[1..];
    let mut quotes = value.match_indices('"').map(|(at, _)| at).peekable();
    while let Some(at) = quotes.next() {
        // Two quotes are one in the value.
        if quotes.next_if_eq(&(at + 1)).is_none() {
            return value[at + 1..].strip_prefix(',');
        }
    }
    None
}

#[derive(Default)]
pub(super) struct Reader {
    text: String,
    /// True inside a quoted value, which goes on in the next line.
    pub(super) is_quoted: bool,
}

impl Reader {
    pub(super) fn line(&mut self, line: &str) -> Option<Record> {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        // A quote inside a value is doubled, so an odd count opens or closes a value.
        if line.matches('"').count() % 2 == 1 {
            self.is_quoted = !self.is_quoted;
        }
        if self.is_quoted {
            return None;
        }
        record(&std::mem::take(&mut self.text))
    }
}

fn record(text: &str) -> Option<Record> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(text.as_bytes());
    let values = reader.records().next()?.ok()?;
    Record::of(|column, _| {
        let value = values.get(column).filter(|value| !value.is_empty());
        value.map(str::to_owned)
    })
}
