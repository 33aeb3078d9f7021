//! Reports the lock waits and deadlocks in a server's log.
//!
//! `source` reads the lines of files and of standard input. `reader` parses them into records, in
//! any of the server's three formats (`stderr` and `csv_log` have their own files). `event` extracts
//! the lock event of a record, and `waits` sums up the events by lock. `report` and `waits_json`
//! write the result, or each incident as it is logged.

mod csv_log;
mod event;
mod reader;
mod record;
mod report;
mod source;
mod stderr;
mod waits;
mod waits_json;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::SimpleQueryRow;

use crate::cli::{Answer, CODES, Format};
use crate::failure::{Failure, Result, bail};
use crate::selection::NameSources;
use crate::{database, screen};
use source::Source;
use waits::Waits;

const INTERVAL: Duration = Duration::from_millis(250);

/// Sums up the waits for each advisory lock, and the deadlocks, in a server's log
///
/// Reads PostgreSQL's log (stderr, csvlog or jsonlog), and prints for each advisory lock how often
/// sessions waited for it, how long, and who held it. The log has the waits longer than
/// `deadlock_timeout`, if `log_lock_waits` is on, those that were cancelled, and deadlocks.
///
/// Names come from the lock sites of `--artifact` or `--inventory`, from the comments of the
/// statements, or from the table of other tools' numbers. Messages must be in English
/// (`lc_messages = C`).
#[derive(Args)]
#[command(after_help = CODES)]
pub(crate) struct Arguments {
    /// The server's log; `-` or none for the standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Continues as the log grows, and prints each event on a line, until Ctrl-C
    #[arg(short, long, conflicts_with = "output")]
    follow: bool,
    /// The server that wrote the log: gives the databases their names where `log_line_prefix` has
    /// no `%d`
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    #[command(flatten)]
    answer: Answer,
    #[command(flatten)]
    names: NameSources,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<bool> {
        let mut waits = Waits::new(self.names.names()?);
        if self.database_url.is_some() {
            waits.databases = databases(&database::find(self.database_url.as_ref())?)?;
        }
        let mut sources = source::open(&self.files, self.follow)?;
        if self.follow {
            return database::block_on(follow(&mut sources, &mut waits, self.answer.format));
        }
        for source in &mut sources {
            let mut take = |record| drop(waits.take(record));
            source.read(&mut take)?;
            source.finish(&mut take);
        }
        if waits.records == 0 {
            bail!(
                "no message of a PostgreSQL server: name its log, in the format stderr, csvlog or jsonlog"
            );
        }
        if let Some(said) = report::language_note(&waits) {
            if waits.locks.is_empty() {
                return Err(Failure::Input(said));
            }
            if self.answer.format == Format::Json {
                screen::note(&format!("{said}\n"));
            }
        }
        let text = |width| report::table(&waits, width);
        self.answer.write(text, || waits_json::write(&waits))?;
        Ok(true)
    }
}

/// The names of a server's databases, by their numbers.
fn databases(address: &str) -> Result<BTreeMap<u32, String>> {
    const DATABASES: &str = "SELECT d.oid, d.datname FROM pg_catalog.pg_database AS d";
    let rows = database::query(address, DATABASES)?;
    let database = |row: &SimpleQueryRow| Some((row.get(0)?.parse().ok()?, row.get(1)?.to_owned()));
    Ok(rows.iter().filter_map(database).collect())
}

/// Prints incidents as they are logged, until Ctrl-C, until the end of standard input, or until the
/// output is closed.
async fn follow(sources: &mut [Source], waits: &mut Waits, format: Format) -> Result<bool> {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ended = pin!(database::ended());
    let mut is_noted = false;
    loop {
        let mut text = String::new();
        for source in &mut *sources {
            let mut take = |record| {
                if let Some(incident) = waits.take(record) {
                    text.push_str(&match format {
                        Format::Text => report::line(waits, &incident),
                        Format::Json => waits_json::line(waits, &incident),
                    });
                }
            };
            let has_read = source.read(&mut take)?;
            if source.is_over() {
                source.finish(&mut take);
            } else if !has_read {
                source.pause(&mut take);
                source.rotate(&mut take)?;
            }
        }
        if let Some(said) = report::language_note(waits).filter(|_| !is_noted) {
            is_noted = true;
            screen::note(&format!("{said}\n"));
        }
        if !text.is_empty() && !screen::print(&text)? || sources.iter().all(Source::is_over) {
            return Ok(true);
        }
        let tick = database::unless(ended.as_mut(), ticks.tick()).await;
        if tick.is_none() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use advisory_runtime::monitor::Names;
    use advisory_tests::fuzz;
    use serde_json::{Value, json};

    use super::reader::Reader;
    use super::record::{Record, Time};
    use super::waits::Waits;
    use super::{report, waits_json};
    use crate::text::controls_terminal;

    const TIME: &str = "2026-11-22 07:06:19.026 UTC";

    fn records(log: &str) -> Vec<Record> {
        let (mut reader, mut records) = (Reader::default(), Vec::new());
        for line in log.split('\n') {
            reader.line(line, &mut |record| records.push(record));
        }
        records.extend(reader.flush());
        records
    }

    /// Checks that the output for a log controls no terminal, and that JSON is valid.
    fn is_reported(log: &str) {
        let mut waits = Waits::new(Names::none());
        for record in records(log) {
            if let Some(incident) = waits.take(record) {
                assert_is_plain(&report::line(&waits, &incident));
                assert_is_json(&waits_json::line(&waits, &incident));
            }
        }
        for width in [None, Some(40), Some(120)] {
            assert_is_plain(&report::table(&waits, width));
        }
        assert_is_json(&waits_json::write(&waits));
    }

    fn assert_is_json(text: &str) {
        assert!(serde_json::from_str::<Value>(text).is_ok(), "{text}");
        assert_is_plain(text);
    }

    fn assert_is_plain(text: &str) {
        let text = anstream::adapter::strip_str(text).to_string();
        let is_control = |letter: char| letter != '\n' && controls_terminal(letter);
        assert!(!text.contains(is_control), "{text:?}");
    }

    /// A record with the values in an input, as the server logs it in its two structured formats.
    fn written(input: &str) -> Record {
        let mut values = input.split('\u{1f}').map(str::to_owned);
        let mut value = || values.next().unwrap_or_default();
        let some = |value: String| Some(value).filter(|value| !value.is_empty());
        Record {
            time: Time::find(TIME),
            pid: Some(13_595),
            // The server logs no empty message.
            message: format!("m{}", value()),
            detail: value(),
            statement: value(),
            user: some(name(&value())),
            database: some(name(&value())),
            application: some(value()),
            ..Record::default()
        }
    }

    /// The name of a user or a database, which has one line, and not only quotes.
    fn name(text: &str) -> String {
        let name = text.replace('\n', " ");
        let is_quotes = !name.is_empty() && name.chars().all(|letter| letter == '"');
        if is_quotes { String::new() } else { name }
    }

    fn text(input: &[u8]) -> String {
        String::from_utf8_lossy(input).into_owned()
    }

    #[test]
    fn any_plain_log_is_read() {
        fuzz("tests/corpus/log-stderr", |input| is_reported(&text(input)));
    }

    #[test]
    fn any_csv_log_is_read() {
        fuzz("tests/corpus/log-csv", |input| {
            let input = text(input);
            is_reported(&input);
            let record = written(&input);
            let quoted = |value: &str| match value {
                "" => String::new(),
                value => format!("\"{}\"", value.replace('"', "\"\"")),
            };
            let some = |value: &Option<String>| quoted(value.as_deref().unwrap_or_default());
            let line = format!(
                "{TIME},{},{},13595,,6b.35,1,,{TIME},,0,LOG,00000,{},{},,,,,{},,,{},\"client backend\",,0",
                some(&record.user),
                some(&record.database),
                quoted(&record.message),
                quoted(&record.detail),
                quoted(&record.statement),
                some(&record.application)
            );
            assert_eq!(records(&line), [record], "{line}");
        });
    }

    #[test]
    fn any_json_log_is_read() {
        fuzz("tests/corpus/log-json", |input| {
            let input = text(input);
            is_reported(&input);
            let record = written(&input);
            let line = json!({
                "timestamp": TIME,
                "pid": 13_595,
                "error_severity": "LOG",
                "user": record.user,
                "dbname": record.database,
                "application_name": record.application,
                "message": record.message,
                "detail": record.detail,
                "statement": record.statement,
            });
            assert_eq!(records(&line.to_string()), [record], "{line}");
        });
    }
}
