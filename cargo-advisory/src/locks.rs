//! Who holds which lock right now, and who waits?
//!
//! `address` finds the database, `session` connects to it, through `tls`; the runtime's monitor looks. `tree` says what stands below what, `view`
//! and `live_json` write it, `age` says how old it is, and `end` ends what is stuck.

mod address;
mod age;
mod end;
mod live_json;
mod session;
mod tls;
mod tree;
mod view;

pub(crate) use view::hex;

use std::fmt::Write;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use advisory_runtime::Error;
use advisory_runtime::lease::Table;
use advisory_runtime::monitor::{self, ClaimedRow, Lease, Locks, Names};
use clap::ArgMatches;
use clap::parser::ValueSource;
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::screen::{DIM, ERROR, one_line};
use crate::{cli, json, screen};
use session::Session;

/// One look at the database.
struct Look {
    locks: Locks,
    /// None where the table is missing, or may not be read.
    leases: Option<Vec<Lease>>,
    /// The claimed rows, each with its table.
    claims: Vec<(String, ClaimedRow)>,
    /// Those that are to be shown, by their place in `locks`.
    wanted: Vec<usize>,
    older_than: Option<Duration>,
}

/// What is looked for.
struct Question {
    names: Names,
    table: Table,
    is_table_named: bool,
    claims: Vec<String>,
    older_than: Option<Duration>,
}

/// Answers `cargo advisory locks`; tells whether nothing was found that was looked for.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool, Failure> {
    if let Some((word, _)) = matches.subcommand() {
        has_no_list(matches, word)?;
    }
    let question = Question::read(matches)?;
    let address = address::find(matches.get_one::<String>("database-url"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Input(format!("can't start: {error}")))?;
    runtime.block_on(async {
        match matches.subcommand() {
            Some((word @ ("cancel" | "terminate"), to)) => {
                let mut session = Session::open(&address).await?;
                let look = question.look(&mut session).await?;
                end::run(&mut session, &look.locks, end::How::of(word), to).await
            }
            _ if matches.get_flag("watch") => watch(matches, &question, &address).await,
            _ => {
                let mut session = Session::open(&address).await?;
                let look = question.look(&mut session).await?;
                show(&look, matches.get_flag("json"))?;
                Ok(question.older_than.is_none() || look.wanted.is_empty())
            }
        }
    })
}

/// What says how the list is shown says nothing where something is ended: better refused than passed over.
fn has_no_list(matches: &ArgMatches, word: &str) -> Result<(), Failure> {
    let given = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let mut of_the_list = [
        "json",
        "watch",
        "interval",
        "older-than",
        "lease-table",
        "claims",
    ]
    .iter();
    match of_the_list.find(|name| given(name)) {
        Some(name) => Err(Failure::Input(format!(
            "`--{name}` is for the list, and `{word}` shows none: leave it out"
        ))),
        None => Ok(()),
    }
}

impl Question {
    fn read(matches: &ArgMatches) -> Result<Self, Failure> {
        let artifacts = cli::paths(matches, "artifact");
        let mut sites = Inventory::read(&artifacts)?.sites;
        if let (Some(file), true) = (artifacts.first(), sites.is_empty()) {
            return Err(Failure::Input(format!(
                "{}: no lock sites, so it names no lock: give the program that takes them, or leave `--artifact` out",
                file.display()
            )));
        }
        for file in cli::paths(matches, "inventory") {
            let text =
                std::fs::read_to_string(&file).map_err(|error| Failure::unread(&file, error))?;
            sites.extend(json::read(&file, &text)?.sites);
        }
        let names = Names::of(Inventory::of(sites).sites)
            .map_err(|error| Failure::Input(format!("the inventory: {error}")))?;
        let table = matches.get_one::<String>("lease-table");
        Ok(Self {
            names,
            is_table_named: table.is_some(),
            table: match table {
                Some(name) => Table::new().named(name).map_err(|error| wrong(&error))?,
                None => Table::new(),
            },
            claims: matches
                .get_many("claims")
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            older_than: matches.get_one::<Duration>("older-than").copied(),
        })
    }

    async fn look(&self, session: &mut Session) -> Result<Look, Failure> {
        let locks = monitor::locks(session.conn(), &self.names);
        let locks = session::bounded(locks)
            .await?
            .map_err(|error| wrong(&error))?;
        let leases = monitor::leases(session.conn(), &self.table, &self.names);
        let leases = match session::bounded(leases).await? {
            Ok(leases) => Some(leases),
            // Not every database has leases, and not every role may read them.
            Err(Error::MissingTable { .. } | Error::Database(_)) if !self.is_table_named => None,
            Err(error) => return Err(wrong(&error)),
        };
        let mut claims = Vec::new();
        for table in &self.claims {
            let rows = monitor::claimed_rows(session.conn(), table);
            let rows = session::bounded(rows)
                .await?
                .map_err(|error| wrong(&error))?;
            claims.extend(rows.into_iter().map(|row| (table.clone(), row)));
        }
        let wanted = (0..locks.locks.len())
            .filter(|at| {
                let lock = &locks.locks[*at];
                self.older_than
                    .is_none_or(|bound| age::is_older(&locks, lock, bound))
            })
            .collect();
        Ok(Look {
            locks,
            leases,
            claims,
            wanted,
            older_than: self.older_than,
        })
    }
}

/// Looks again and again until Ctrl-C. What fails after the first look is tried again: a server that fails over comes back.
async fn watch(matches: &ArgMatches, question: &Question, address: &str) -> Result<bool, Failure> {
    let is_json = matches.get_flag("json");
    let every = matches.get_one("interval").copied().unwrap_or(INTERVAL);
    // Never so often that looking is all that the server does.
    let every = every.max(SHORTEST);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut session = Some(Session::open(address).await?);
    let mut ended = pin!(tokio::signal::ctrl_c());
    loop {
        let looked = async {
            ticks.tick().await;
            if session.is_none() {
                session = Some(Session::open(address).await?);
            }
            match &mut session {
                Some(session) => question.look(session).await.map(Some),
                None => Ok(None),
            }
        };
        let Some(looked) = unless(ended.as_mut(), looked).await else {
            return Ok(true);
        };
        match looked {
            Ok(Some(look)) => {
                let text = if is_json {
                    live_json::line(&look)
                } else {
                    redrawn(&view::write(&look, screen::width(None)), every)
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

/// Does the work, unless the signal comes first: then `None`.
async fn unless<T>(
    mut signal: Pin<&mut impl Future<Output = io::Result<()>>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match signal.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => work.as_mut().poll(context).map(Some),
    })
    .await
}

/// Reads a time of the command line.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    age::parse(text)
}

/// How often `--watch` looks.
const INTERVAL: Duration = Duration::from_secs(2);

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(10);

/// The picture in place of the one before it, as far as the terminal has lines; in a pipe below it.
fn redrawn(picture: &str, every: Duration) -> String {
    let Some(height) = screen::height() else {
        return format!("{picture}\n");
    };
    let all: Vec<&str> = picture.lines().collect();
    // The head, and the line that the cursor stands in, are lines too.
    let room = height.saturating_sub(2).max(1);
    let kept = if all.len() > room {
        room - 1
    } else {
        all.len()
    };
    let mut text = format!(
        "\u{1b}[H{DIM}every {}; Ctrl-C ends{DIM:#}\u{1b}[K\n",
        age::short(every)
    );
    for line in &all[..kept] {
        text.push_str(line);
        text.push_str("\u{1b}[K\n");
    }
    if kept < all.len() {
        let more = all.len() - kept;
        // A `String` takes everything.
        let _ = writeln!(text, "{DIM}… and {more} lines more{DIM:#}\u{1b}[K");
    }
    text.push_str("\u{1b}[J");
    text
}

fn show(look: &Look, is_json: bool) -> Result<(), Failure> {
    let text = if is_json {
        live_json::write(look)
    } else {
        view::write(look, screen::width(None))
    };
    screen::write(None, &text)
}

/// What the server says is shown on a terminal too.
fn wrong(error: &Error) -> Failure {
    Failure::Input(one_line(&session::chain(error)))
}
