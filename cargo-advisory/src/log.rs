//! Reports the lock waits and deadlocks in a server's log.
//!
//! `source` reads the lines of files and of standard input, `record` parses them into records, in any of the server's three formats
//! (`stderr`, `csv_log`, `json_log`), `event` extracts a record's lock event, `waits` adds the events up by lock (`lock_waits`), and
//! `report` and `waits_json` write the result, or each `incident` as it is logged.

mod csv_log;
mod event;
mod incident;
mod json_log;
mod lock_waits;
mod record;
mod report;
mod source;
mod stderr;
mod time;
mod waits;
mod waits_json;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::SimpleQueryRow;

use crate::cli::{CODES, Format, Output};
use crate::failure::Failure;
use crate::names::NameSources;
use crate::{database, screen};
use source::Source;
use waits::Waits;

/// How often `--follow` checks for new lines.
const INTERVAL: Duration = Duration::from_millis(250);

/// Sums up the waits for each advisory lock, and the deadlocks, in a server's log
///
/// Reads PostgreSQL's log (stderr, csvlog or jsonlog), and prints for each advisory lock how often sessions waited for it, how long,
/// and who held it. The log has the waits longer than `deadlock_timeout`, if `log_lock_waits` is on, those that were cancelled, and
/// deadlocks.
///
/// Names come from the lock sites of `--artifact` or `--inventory`, from the comments of the statements, or from the table of other
/// tools' numbers. Messages must be in English (`lc_messages = C`).
#[derive(Args)]
#[command(after_help = CODES)]
pub(crate) struct Arguments {
    /// The server's log; `-` or none for the standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Continues as the log grows, and prints each event on a line, until Ctrl-C
    #[arg(short, long, conflicts_with = "output")]
    follow: bool,
    /// The server that wrote the log: gives the databases their names where `log_line_prefix` has no `%d`
    #[arg(long, value_name = "URL")]
    database_url: Option<String>,
    /// The output format
    #[arg(long, default_value = "text")]
    format: Format,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    names: NameSources,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<bool, Failure> {
        let mut waits = Waits::new(self.names.read()?);
        if self.database_url.is_some() {
            waits.databases = databases(&database::find(self.database_url.as_ref())?)?;
        }
        let mut sources = source::open(&self.files, self.follow)?;
        if self.follow {
            return database::block_on(follow(&mut sources, &mut waits, self.format));
        }
        for source in &mut sources {
            let mut take = |record| drop(waits.take(record));
            source.read(&mut take)?;
            source.finish(&mut take);
        }
        if waits.records == 0 {
            let why = "no message of a PostgreSQL server: name its log, in the format stderr, csvlog or jsonlog";
            return Err(Failure::Input(why.to_owned()));
        }
        if let Some(said) = report::language_note(&waits) {
            if waits.locks.is_empty() {
                return Err(Failure::Input(said));
            }
            if self.format == Format::Json {
                screen::note(&format!("{said}\n"));
            }
        }
        let text = match self.format {
            Format::Text => report::table(&waits, self.output.width()),
            Format::Json => waits_json::write(&waits),
        };
        self.output.write(&text)?;
        Ok(true)
    }
}

/// The names of a server's databases, by their numbers.
fn databases(address: &str) -> Result<BTreeMap<u32, String>, Failure> {
    const DATABASES: &str = "SELECT d.oid, d.datname FROM pg_catalog.pg_database AS d";
    let rows = database::query(address, DATABASES)?;
    let database = |row: &SimpleQueryRow| Some((row.get(0)?.parse().ok()?, row.get(1)?.to_owned()));
    Ok(rows.iter().filter_map(database).collect())
}

/// Prints incidents as they are logged, until Ctrl-C, the end of standard input, or the end of what reads the output.
async fn follow(
    sources: &mut [Source],
    waits: &mut Waits,
    format: Format,
) -> Result<bool, Failure> {
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
            if source.read(&mut take)? {
                continue;
            }
            if source.is_over() {
                source.finish(&mut take);
            } else {
                source.pause(&mut take);
                source.rotate(&mut take)?;
            }
        }
        if let Some(said) = report::language_note(waits).filter(|_| !is_noted) {
            is_noted = true;
            screen::note(&format!("{said}\n"));
        }
        if !text.is_empty() && !screen::print(&text)? {
            return Ok(true);
        }
        if sources.iter().all(Source::is_over) {
            return Ok(true);
        }
        if database::unless(ended.as_mut(), ticks.tick())
            .await
            .is_none()
        {
            return Ok(true);
        }
    }
}
