//! Shows who holds which lock now, and who waits.
//!
//! The runtime's monitor reads the locks, and `pooled` removes this command's own traces. `tree` puts them in order, `view`, with its
//! `cells` and the `causes` below it, and `live_json` write them, `age` tells how old they are, `renewal` when a lease was renewed, and `end` cancels a statement or terminates a session.

mod age;
mod causes;
mod cells;
mod end;
mod live_json;
mod pooled;
mod renewal;
mod tree;
mod view;

pub(crate) use crate::json::visible;
pub(crate) use cells::{DONE, OVERDUE, hex, label, lease as lease_cells, lease_label};
pub(crate) use end::confirm;
pub(crate) use live_json::{key_json, lease as lease_json, millis, name_json};
pub(crate) use renewal::{UNKNOWN as UNKNOWN_RENEWAL, is_unknown as is_renewal_unknown};

use std::fmt::Write;
use std::pin::pin;
use std::time::{Duration, Instant};

use advisory_runtime::lease::{Error, Table};
use advisory_runtime::monitor::{self, ClaimedRow, HolderId, LeaseSummary, Lock, Locks, Names};
use clap::ArgMatches;
use clap::parser::ValueSource;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use crate::database::{self, Session, failure, unless, with_timeout};
use crate::failure::Failure;
use crate::screen::{DIM, ERROR};
use crate::{duration, names, screen};
use age::Age;

/// The locks and leases of a database at one moment.
struct Snapshot {
    locks: Locks,
    /// `None` if the table is missing or could not be read.
    leases: Option<LeaseSummary>,
    /// Why the leases could not be read.
    unread: Option<Failure>,
    /// The claimed rows, each with its table.
    claims: Vec<(String, ClaimedRow)>,
    /// The locks to show, as indices into `locks`.
    wanted: Vec<usize>,
    /// Those of them of which it is not known whether they are older than `older_than`.
    unknown: Vec<usize>,
    /// The sessions of a pooler that hold locks and that this command has used too.
    pooled: Vec<i32>,
    older_than: Option<Duration>,
    filter: Option<String>,
}

/// The locks, which of them are wanted, and which of these are of unknown age.
struct Seen {
    locks: Locks,
    wanted: Vec<usize>,
    unknown: Vec<usize>,
    pooled: Vec<i32>,
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

/// Runs `cargo advisory locks`; `false` if `--older-than` found a lock, or no signal was sent. It fails, after it has shown the rest, if
/// the leases could not be read, or if it is not known whether a lock is older.
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
                let snapshot = options.snapshot(&mut session, 0).await?;
                let action = end::Action::of(word);
                let ended = end::run(&mut session, &snapshot.locks, action, to).await;
                session.close().await;
                ended
            }
            _ if matches.get_flag("watch") => watch(matches, &options, &address).await,
            _ => {
                let mut session = Session::open(&address).await?;
                let snapshot = options.snapshot(&mut session, LOOKS).await?;
                session.close().await;
                show(&snapshot, matches.get_flag("json"))?;
                outcome(snapshot)
            }
        }
    })
}

/// How the command ends after a list: with `false` if `--older-than` found a lock, and with a failure if something is not known.
fn outcome(snapshot: Snapshot) -> Result<bool, Failure> {
    let unknown = view::unknown(&snapshot);
    if let Some(why) = snapshot.unread {
        return Err(why);
    }
    let leases = snapshot.leases.as_ref();
    let has_row =
        leases.is_some_and(|summary| !summary.leases.is_empty()) || !snapshot.claims.is_empty();
    let has_lock = snapshot.wanted.len() > snapshot.unknown.len();
    let is_found = snapshot.older_than.is_some() && (has_lock || has_row);
    match unknown {
        Some(why) if !is_found => Err(Failure::Input(why)),
        why => {
            if let Some(why) = why {
                screen::note(&format!("{why}\n"));
            }
            Ok(!is_found)
        }
    }
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

    /// Reads the locks. While it is not known whether one is older than `--older-than`, it looks again, up to `looks` times: most locks
    /// are released soon, and what was not held before is young.
    async fn settled_locks(&self, session: &mut Session, looks: u32) -> Result<Seen, Failure> {
        let since = Instant::now();
        let mut seen = self.locks(session).await?;
        let mut held = age::holders(&seen.locks);
        for _ in 0..looks {
            if seen.unknown.is_empty() {
                break;
            }
            sleep_until((Instant::now() + PAUSE).into()).await;
            seen = self.locks(session).await?;
            if self
                .older_than
                .is_some_and(|bound| since.elapsed() >= bound)
            {
                break;
            }
            let now = age::holders(&seen.locks);
            held.retain(|holder| now.contains(holder));
            let is_young = |at: &usize| {
                let mut holders = age::holders_of(&seen.locks.locks[*at]);
                !holders.any(|holder| held.contains(&holder))
            };
            let young: Vec<usize> = seen.unknown.iter().copied().filter(is_young).collect();
            seen.wanted.retain(|at| !young.contains(at));
            seen.unknown.retain(|at| !young.contains(at));
        }
        Ok(seen)
    }

    async fn locks(&self, session: &mut Session) -> Result<Seen, Failure> {
        let locks = monitor::locks(session.conn(), &self.names);
        let mut locks = with_timeout(locks)
            .await?
            .map_err(|error| failure(&error))?;
        let pooled = pooled::remove_traces(&mut locks);
        let (mut wanted, mut unknown) = (Vec::new(), Vec::new());
        for (at, lock) in locks.locks.iter().enumerate() {
            let filter = self.filter.as_ref();
            let bound = self.older_than;
            let age = bound.map_or(Age::Older, |bound| age::of(&locks, lock, bound));
            if age == Age::Younger || filter.is_some_and(|filter| !is_named(&locks, lock, filter)) {
                continue;
            }
            wanted.push(at);
            if age == Age::Unknown {
                unknown.push(at);
            }
        }
        Ok(Seen {
            locks,
            wanted,
            unknown,
            pooled,
        })
    }

    async fn snapshot(&self, session: &mut Session, looks: u32) -> Result<Snapshot, Failure> {
        let Seen {
            locks,
            wanted,
            unknown,
            pooled,
        } = self.settled_locks(session, looks).await?;
        let filter = self.filter.as_deref();
        let leases =
            monitor::lease_summary(session.conn(), &self.table, &self.names, filter, LEASES);
        let (leases, unread) = match with_timeout(leases).await? {
            Ok(leases) => (Some(leases), None),
            // Many databases have no leases.
            Err(Error::MissingTable { .. }) if !self.is_table_named => (None, None),
            Err(error) => (None, Some(unread(&self.table, &error))),
        };
        let mut claims = Vec::new();
        for table in &self.claims {
            let rows = monitor::claimed_rows(session.conn(), table);
            let rows = with_timeout(rows).await?.map_err(|error| failure(&error))?;
            claims.extend(rows.into_iter().map(|row| (table.clone(), row)));
        }
        if let Some(filter) = &self.filter {
            let has = |cells: &[String]| cells.iter().any(|cell| matches(cell, filter));
            claims.retain(|(table, row)| has(&cells::claim(table, row)[..3]));
        }
        let mut leases = leases;
        if let Some(bound) = self.older_than {
            if let Some(summary) = &mut leases {
                summary
                    .leases
                    .retain(|lease| renewal::is_older(lease, bound));
                summary.counts.clear();
            }
            claims.retain(|(_, row)| row.remaining.is_zero() && row.expired >= bound);
        }
        Ok(Snapshot {
            locks,
            leases,
            unread,
            claims,
            wanted,
            unknown,
            pooled,
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

/// Refreshes until Ctrl-C, or until the output is closed. A failure after the first connection is shown and retried: a server that fails over comes back.
async fn watch(matches: &ArgMatches, options: &Options, address: &str) -> Result<bool, Failure> {
    let is_json = matches.get_flag("json");
    let every = matches.get_one("interval").copied().unwrap_or(INTERVAL);
    // Reading the locks must not be all that the server does.
    let every = every.max(SHORTEST_INTERVAL);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut session = Some(Session::open(address).await?);
    let mut ended = pin!(database::ended());
    loop {
        let refreshed = async {
            ticks.tick().await;
            if session.is_none() {
                session = Some(Session::open(address).await?);
            }
            match &mut session {
                Some(session) => options.snapshot(session, 0).await.map(Some),
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
                // Text has it among its lines.
                if let Some(why) = snapshot.unread.filter(|_| is_json) {
                    screen::note(&format!("{ERROR}error{ERROR:#}: {why}\n"));
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

/// How many held leases and how many kept keys are read one by one. The others are counted.
const LEASES: u32 = 1_000;

fn unread(table: &Table, error: &Error) -> Failure {
    let (table, why) = (table.name(), failure(error));
    Failure::Input(format!("cannot read the leases in `{table}`: {why}"))
}

/// How often `--older-than` looks again while the age of a lock is not known.
const LOOKS: u32 = 20;

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(100);

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
