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
use std::pin::pin;
use std::time::Duration;

use clap::ArgMatches;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::SimpleQueryMessage;

use crate::cli::{self, Format};
use crate::failure::Failure;
use crate::{database, names, screen};
use source::Source;
use waits::Waits;

/// How often `--follow` checks for new lines.
const INTERVAL: Duration = Duration::from_millis(250);

/// Runs `cargo advisory log`.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    let follows = matches.get_flag("follow");
    let mut waits = Waits::new(names::read(matches)?);
    if let Some(address) = matches.get_one::<String>("database-url") {
        waits.databases = databases(&database::find(Some(address))?)?;
    }
    let mut sources = source::open(&cli::paths(matches, "file"), follows)?;
    let format = cli::format_of(matches);
    if follows {
        return database::block_on(follow(&mut sources, &mut waits, format));
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
    if let Some(said) = report::foreign(&waits) {
        if waits.locks.is_empty() {
            return Err(Failure::Input(said));
        }
        if format == Format::Json {
            screen::note(&format!("{said}\n"));
        }
    }
    let text = match format {
        Format::Json => waits_json::write(&waits),
        _ => report::table(&waits, screen::width(None)),
    };
    screen::write(cli::path(matches, "output").map(AsRef::as_ref), &text)?;
    Ok(true)
}

/// The names of a server's databases, by their numbers.
fn databases(address: &str) -> Result<BTreeMap<u32, String>, Failure> {
    const DATABASES: &str = "SELECT d.oid, d.datname FROM pg_catalog.pg_database AS d";
    database::block_on(async {
        let (client, connection) = database::connect(address).await?;
        let connection = tokio::spawn(async move { drop(connection.await) });
        let answer = database::with_timeout(client.simple_query(DATABASES)).await?;
        let answer = answer.map_err(|error| database::failure(&error))?;
        connection.abort();
        let databases = answer.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((row.get(0)?.parse().ok()?, row.get(1)?.to_owned()))
            }
            _ => None,
        });
        Ok(databases.collect())
    })
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
                        Format::Json => waits_json::line(waits, &incident),
                        _ => report::line(waits, &incident),
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
        if let Some(said) = report::foreign(waits).filter(|_| !is_noted) {
            is_noted = true;
            screen::note(&format!("{said}\n"));
        }
        if !text.is_empty() && !screen::is_read(&text)? {
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
