//! Who holds which lock right now, and who waits?
//!
//! The runtime's monitor reads the locks. `tree` puts them in order, `view`, with its `cells`, and `live_json` write them, `age` tells
//! how old they are, and `end` cancels a statement or terminates a session.

mod age;
mod cells;
mod end;
mod live_json;
mod tree;
mod view;

pub(crate) use crate::json::visible;
pub(crate) use cells::{hex, label};
pub(crate) use live_json::{key_json, millis, name_json};

use std::fmt::Write;
use std::pin::pin;
use std::time::Duration;

use advisory_runtime::Error;
use advisory_runtime::lease::Table;
use advisory_runtime::monitor::{self, ClaimedRow, HolderId, Lease, Lock, Locks, Names};
use clap::ArgMatches;
use clap::parser::ValueSource;
use tokio::time::{MissedTickBehavior, interval};

use crate::database::{self, Session, failure, unless, with_timeout};
use crate::failure::Failure;
use crate::screen::{DIM, ERROR};
use crate::{duration, names, screen};

/// The locks and leases of a database at one moment.
struct Snapshot {
    locks: Locks,
    /// `None` if the table is missing, or the role may not read it.
    leases: Option<Vec<Lease>>,
    /// The claimed rows, each with its table.
    claims: Vec<(String, ClaimedRow)>,
    /// The locks to show, as indices into `locks`.
    wanted: Vec<usize>,
    older_than: Option<Duration>,
    filter: Option<String>,
}

/// What the command line asks for.
struct Options {
    names: Names,
    table: Table,
    is_table_named: bool,
    claims: Vec<String>,
    older_than: Option<Duration>,
    filter: Option<String>,
}

/// Runs `cargo advisory locks`; `false` if `--older-than` found a lock, or no signal was sent.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    if let Some((word, _)) = matches.subcommand() {
        refuse_list_flags(matches, word)?;
    }
    let options = Options::read(matches)?;
    let address = database::find(matches.get_one::<String>("database-url"))?;
    database::block_on(async {
        match matches.subcommand() {
            Some((word @ ("cancel" | "terminate"), to)) => {
                let mut session = Session::open(&address).await?;
                let snapshot = options.snapshot(&mut session).await?;
                end::run(&mut session, &snapshot.locks, end::Action::of(word), to).await
            }
            _ if matches.get_flag("watch") => watch(matches, &options, &address).await,
            _ => {
                let mut session = Session::open(&address).await?;
                let snapshot = options.snapshot(&mut session).await?;
                show(&snapshot, matches.get_flag("json"))?;
                Ok(options.older_than.is_none() || snapshot.wanted.is_empty())
            }
        }
    })
}

/// Flags of the list have no effect on `cancel` and `terminate`, so they are refused.
fn refuse_list_flags(matches: &ArgMatches, word: &str) -> Result<(), Failure> {
    let given = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let mut of_the_list = [
        "json",
        "watch",
        "interval",
        "older-than",
        "lease-table",
        "claims",
        "filter",
    ]
    .iter();
    match of_the_list.find(|name| given(name)) {
        Some(name) => Err(Failure::Input(format!(
            "`--{name}` does not apply to `{word}`: leave it out"
        ))),
        None => Ok(()),
    }
}

impl Options {
    fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let names = names::read(matches)?;
        let table = matches.get_one::<String>("lease-table");
        Ok(Self {
            names,
            is_table_named: table.is_some(),
            table: match table {
                Some(name) => Table::new().named(name).map_err(|error| failure(&error))?,
                None => Table::new(),
            },
            claims: matches
                .get_many("claims")
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            older_than: matches.get_one::<Duration>("older-than").copied(),
            filter: matches.get_one::<String>("filter").cloned(),
        })
    }

    async fn snapshot(&self, session: &mut Session) -> Result<Snapshot, Failure> {
        let locks = monitor::locks(session.conn(), &self.names);
        let locks = with_timeout(locks)
            .await?
            .map_err(|error| failure(&error))?;
        let leases = monitor::leases(session.conn(), &self.table, &self.names);
        let mut leases = match with_timeout(leases).await? {
            Ok(leases) => Some(leases),
            // Many databases have no leases, and many roles may not read them.
            Err(Error::MissingTable { .. } | Error::Database(_)) if !self.is_table_named => None,
            Err(error) => return Err(failure(&error)),
        };
        let mut claims = Vec::new();
        for table in &self.claims {
            let rows = monitor::claimed_rows(session.conn(), table);
            let rows = with_timeout(rows).await?.map_err(|error| failure(&error))?;
            claims.extend(rows.into_iter().map(|row| (table.clone(), row)));
        }
        if let Some(filter) = &self.filter {
            let has = |cells: &[String]| cells.iter().any(|cell| matches(cell, filter));
            if let Some(leases) = &mut leases {
                leases.retain(|lease| has(&cells::lease(lease)[..2]));
            }
            claims.retain(|(table, row)| has(&cells::claim(table, row)[..3]));
        }
        let is_wanted = |at: &usize| {
            let lock = &locks.locks[*at];
            let bound = self.older_than;
            let filter = self.filter.as_ref();
            bound.is_none_or(|bound| age::is_older(&locks, lock, bound))
                && filter.is_none_or(|filter| is_named(&locks, lock, filter))
        };
        let wanted = (0..locks.locks.len()).filter(is_wanted).collect();
        Ok(Snapshot {
            locks,
            leases,
            claims,
            wanted,
            older_than: self.older_than,
            filter: self.filter.clone(),
        })
    }
}

/// Whether a text contains the other, in upper or lower case.
fn matches(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}

/// Whether the lock, or a session that holds it, waits for it or tries to get it, has this text in its name.
fn is_named(locks: &Locks, lock: &Lock, filter: &str) -> bool {
    let holders = lock.holders.iter().filter_map(|holder| match holder.id {
        HolderId::Backend(pid) => Some(pid),
        _ => None,
    });
    let waiters = lock.waiters.iter().map(|waiter| waiter.pid);
    let tries = lock.tries.iter().map(|one| one.pid);
    let mut sessions = holders.chain(waiters).chain(tries);
    matches(&label(lock.key, &lock.names), filter)
        || sessions.any(|pid| {
            let backend = locks.backend(pid);
            pid.to_string() == filter || backend.is_some_and(|it| matches(&cells::who(it), filter))
        })
}

/// Refreshes until Ctrl-C. A failure after the first connection is shown and retried: a server that fails over comes back.
async fn watch(matches: &ArgMatches, options: &Options, address: &str) -> Result<bool, Failure> {
    let is_json = matches.get_flag("json");
    let every = matches.get_one("interval").copied().unwrap_or(INTERVAL);
    // Reading the locks must not be all that the server does.
    let every = every.max(SHORTEST_INTERVAL);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut session = Some(Session::open(address).await?);
    let mut ended = pin!(tokio::signal::ctrl_c());
    loop {
        let refreshed = async {
            ticks.tick().await;
            if session.is_none() {
                session = Some(Session::open(address).await?);
            }
            match &mut session {
                Some(session) => options.snapshot(session).await.map(Some),
                None => Ok(None),
            }
        };
        let Some(refreshed) = unless(ended.as_mut(), refreshed).await else {
            return Ok(true);
        };
        match refreshed {
            Ok(Some(snapshot)) => {
                let text = if is_json {
                    live_json::line(&snapshot)
                } else {
                    let picture = view::frame(&snapshot, screen::width(None), screen::height());
                    frame(&picture, every)
                };
                if !screen::is_read(&text)? {
                    return Ok(true);
                }
            }
            Ok(None) => {}
            Err(failure) => {
                session = None;
                screen::note(&format!("{ERROR}error{ERROR:#}: {failure}\n"));
            }
        }
    }
}

/// How often `--watch` refreshes.
const INTERVAL: Duration = Duration::from_secs(2);

/// The shortest `--interval`.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The output of one refresh: on a terminal it replaces the previous one, cut to the terminal's height; in a pipe it follows it.
fn frame(picture: &str, every: Duration) -> String {
    let Some(height) = screen::height() else {
        return format!("{picture}\n");
    };
    let all: Vec<&str> = picture.lines().collect();
    // One line is the head, and one has the cursor.
    let room = height.saturating_sub(2).max(1);
    let kept = if all.len() > room {
        room - 1
    } else {
        all.len()
    };
    let mut text = format!(
        "\u{1b}[H{DIM}every {}; Ctrl-C ends{DIM:#}\u{1b}[K\n",
        duration::short(every)
    );
    for line in &all[..kept] {
        text.push_str(line);
        text.push_str("\u{1b}[K\n");
    }
    if kept < all.len() {
        // A `String` takes everything.
        let _ = writeln!(
            text,
            "{DIM}… and more: `--filter` narrows it{DIM:#}\u{1b}[K"
        );
    }
    text.push_str("\u{1b}[J");
    text
}

fn show(snapshot: &Snapshot, is_json: bool) -> Result<(), Failure> {
    let text = if is_json {
        live_json::write(snapshot)
    } else {
        view::write(snapshot, screen::width(None))
    };
    screen::write(None, &text)
}
