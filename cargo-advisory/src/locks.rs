//! Shows who holds which lock now, and who waits.
//!
//! The runtime's monitor reads the locks, and `claims` the claimed rows. `pooled` removes this
//! command's own traces, `age` finds how old a lock is, and `renewal` when a lease was renewed.
//! `tree` orders the locks. `view`, with its `cells` and the `causes` below the tables, and
//! `live_json` write them. `end` cancels a statement or terminates a session.

mod age;
mod causes;
mod cells;
mod claims;
mod end;
mod live_json;
mod pooled;
mod renewal;
mod tree;
mod view;

pub(crate) use cells::{DONE, OVERDUE, label, lease as lease_cells, lease_label};
pub(crate) use live_json::{key_json, lease as lease_json, millis, name_json};
pub(crate) use renewal::unknowns as unknown_renewals;
pub(crate) use view::find_hint;

use std::time::{Duration, Instant};

use advisory_runtime::inventory::ClaimSite;
use advisory_runtime::lease::{Error, Table};
use advisory_runtime::monitor::{self, ClaimedRow, Lease, LeaseSummary, Lock, Locks, Names};
use clap::Args;
use tokio::time::sleep_until;

use crate::cli::{self, CODES, Format, LEASE_TABLE, LiveAnswer};
use crate::database::{self, DatabaseUrl, Session, read_table, with_timeout};
use crate::failure::{Failure, Result, bail};
use crate::screen::{DIM, ERROR};
use crate::selection::{NameSources, names_of};
use crate::{display_width, duration, json, screen};
use age::Age;
use claims::Claims;
use end::Action;

/// The locks and leases of a database at one moment.
struct Snapshot {
    locks: Locks,
    /// `None` if the table is missing or could not be read.
    leases: Option<LeaseSummary>,
    /// Why the leases, or the claims, could not be read.
    unread: Option<Failure>,
    claims: Claims,
    /// The locks to show, as indices into `locks`.
    wanted: Vec<usize>,
    /// Those of them that may be older than `older_than`.
    unknown: Vec<usize>,
    /// The sessions of a pooler that hold locks and that this command has used too.
    pooled: Vec<i32>,
    older_than: Option<Duration>,
    filter: Option<String>,
}

impl Snapshot {
    fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter().flat_map(|summary| &summary.leases)
    }

    fn wanted(&self) -> impl Iterator<Item = &Lock> + Clone {
        self.wanted.iter().map(|at| &self.locks.locks[*at])
    }
}

/// Shows who holds which lock of a database now, and who waits
///
/// The view has the advisory locks and the leases, and who blocks whom. The role should have
/// `pg_monitor`; without it less is shown.
///
/// A lock with a fixed number has the name of its site in `--artifact` or `--inventory`. Other
/// locks have the name in the comment that a locked call writes in front of its query. The claimed
/// rows of the tables for which these programs derive `Claim` are shown too.
#[derive(Args)]
#[command(after_help = CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    database_url: DatabaseUrl,
    #[command(flatten)]
    list: List,
    #[command(flatten)]
    names: NameSources,
}

// The flags of the list.
#[derive(Args)]
struct List {
    #[arg(long, value_name = "TABLE", help = LEASE_TABLE)]
    lease_table: Option<String>,
    /// Also shows the claimed rows of this table, in addition to those of the claims in
    /// `--artifact` or `--inventory`
    #[arg(long, value_name = "TABLE")]
    claims: Vec<String>,
    /// Only locks held or waited for this long, such as `30s`, or of unknown age; exits with 1 if
    /// one is, else with 2 if that is not known
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    older_than: Option<Duration>,
    /// Only locks, leases and claims with this text in their name or number, or in the name of a
    /// session
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    #[command(flatten)]
    answer: LiveAnswer,
}

impl Arguments {
    /// Returns `false` if `--older-than` found a lock, or if no signal was sent. Fails after the
    /// output if the leases could not be read, or if a lock may be older.
    pub(crate) fn run(&self) -> Result<bool> {
        let list = &self.list;
        if let Some(action) = &self.action {
            list.refuse(action)?;
        }
        let inventory = self.names.inventory()?;
        let view = View {
            names: names_of(inventory.sites)?,
            claims: inventory.claims,
            table: cli::lease_table(list.lease_table.as_ref())?,
            list,
        };
        let address = self.database_url.find()?;
        let LiveAnswer { format, output, .. } = &list.answer;
        if let Some(every) = list.answer.every(SHORTEST_INTERVAL) {
            return view.watch(&address, every);
        }
        database::with(&address, async |session: &mut Session| {
            if let Some(action) = &self.action {
                // Neither leases nor claims: somebody can have locked their tables.
                let locks = view.locks(session).await?.locks;
                return action.run(session, &locks).await;
            }
            let snapshot = view.snapshot(session, RETRIES).await?;
            output.write(&match format {
                Format::Text => view::write(&snapshot, output.width()),
                Format::Json => json::pretty(&live_json::value(&snapshot)),
            })?;
            outcome(snapshot)
        })
    }
}

impl List {
    /// Refuses flags that have no effect on `cancel` and `terminate`.
    fn refuse(&self, action: &Action) -> Result<()> {
        let given = [
            ("lease-table", self.lease_table.is_some()),
            ("claims", !self.claims.is_empty()),
            ("older-than", self.older_than.is_some()),
            ("filter", self.filter.is_some()),
            ("format", self.answer.format != Format::Text),
            ("output", self.answer.output.is_file()),
            ("watch", self.answer.every(SHORTEST_INTERVAL).is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(_, is_given)| *is_given) {
            let action = action.name();
            bail!("`--{name}` does not apply to `{action}`: leave it out");
        }
        Ok(())
    }
}

/// The result of the command after a list: `false` if `--older-than` found a lock, and a failure if
/// something is not known.
fn outcome(snapshot: Snapshot) -> Result<bool> {
    let unknown = view::unknown(&snapshot);
    if let Some(why) = snapshot.unread {
        return Err(why);
    }
    if snapshot.older_than.is_none() {
        return Ok(true);
    }
    let unknown_leases = view::unknown_leases(&snapshot);
    if snapshot.wanted.len() > snapshot.unknown.len()
        || snapshot.leases().count() > unknown_leases.len()
        || !snapshot.claims.rows.is_empty()
    {
        if let Some(why) = unknown {
            screen::note(&format!("{why}\n"));
        }
        return Ok(false);
    }
    let renewals = renewal::unknowns(unknown_leases).into_iter();
    let mut unknown: Vec<String> = unknown.into_iter().collect();
    unknown.extend(renewals.map(str::to_owned));
    unknown.extend(snapshot.claims.unfound.into_values());
    if unknown.is_empty() {
        return Ok(true);
    }
    Err(Failure::Input(unknown.join("\n")))
}

struct View<'a> {
    names: Names,
    /// The claims of the inventory.
    claims: Vec<ClaimSite>,
    table: Table,
    list: &'a List,
}

impl View<'_> {
    /// Reads the locks. While one may be older than `--older-than`, reads them again, up to
    /// `retries` times: most locks are released soon, and a lock that was not held before is young.
    async fn settled_locks(&self, session: &mut Session, retries: u32) -> Result<Snapshot> {
        let since = Instant::now();
        let mut selected = self.locks(session).await?;
        let mut held = age::holders(&selected.locks);
        for _ in 0..retries {
            if selected.unknown.is_empty() {
                break;
            }
            sleep_until((Instant::now() + PAUSE).into()).await;
            selected = self.locks(session).await?;
            let bound = self.list.older_than;
            if bound.is_some_and(|bound| since.elapsed() >= bound) {
                break;
            }
            let now = age::holders(&selected.locks);
            held.retain(|holder| now.contains(holder));
            let locks = &selected.locks.locks;
            let is_old = |at: &usize| age::holders_of(&locks[*at]).any(|it| held.contains(&it));
            let unknown = selected.unknown.clone();
            let wanted = &mut selected.wanted;
            wanted.retain(|at| !unknown.contains(at) || is_old(at));
            selected.unknown.retain(is_old);
        }
        Ok(selected)
    }

    /// Reads the locks alone.
    async fn locks(&self, session: &mut Session) -> Result<Snapshot> {
        let mut locks = with_timeout(monitor::locks(session, &self.names)).await??;
        let pooled = pooled::remove_traces(&mut locks);
        let List {
            older_than, filter, ..
        } = self.list;
        let (mut wanted, mut unknown) = (Vec::new(), Vec::new());
        for (at, lock) in locks.locks.iter().enumerate() {
            let age = older_than.map_or(Age::Older, |bound| age::of(&locks, lock, bound));
            let is_unnamed = |filter: &String| !is_named(&locks, lock, filter);
            if age == Age::Younger || filter.as_ref().is_some_and(is_unnamed) {
                continue;
            }
            wanted.push(at);
            if age == Age::Unknown {
                unknown.push(at);
            }
        }
        Ok(Snapshot {
            locks,
            leases: None,
            unread: None,
            claims: Claims::default(),
            wanted,
            unknown,
            pooled,
            older_than: *older_than,
            filter: filter.clone(),
        })
    }

    async fn snapshot(&self, session: &mut Session, retries: u32) -> Result<Snapshot> {
        let locks = self.settled_locks(session, retries).await?;
        let filter = self.list.filter.as_deref();
        let read = async |session: &mut Session| {
            monitor::lease_summary(session, &self.table, &self.names, filter, LEASES).await
        };
        let table = self.table.name();
        let unread = |why| Failure::Input(format!("cannot read the leases in `{table}`: {why}"));
        let (mut leases, unread) = match read_table(session, &table, read).await {
            Ok(Ok(leases)) => (Some(leases), None),
            // Many databases have no leases.
            Ok(Err(Error::MissingTable { .. })) if self.list.lease_table.is_none() => (None, None),
            Ok(Err(error)) => (None, Some(unread(Failure::from(error)))),
            Err(why) => (None, Some(unread(why))),
        };
        // Last, because these tables can be large or locked.
        let mut claims = Claims::default();
        let read = claims.read(session, &self.list.claims, &self.claims);
        let failed = read.await.err();
        let failed = failed.map(|why| Failure::Input(format!("cannot read the claims: {why}")));
        let unread = unread.or(claims.unread.take()).or(failed);
        if let Some(filter) = filter {
            let has = |cells: &[String]| cells.iter().any(|cell| matches(cell, filter));
            let is_named = |table: &str, row: &ClaimedRow| has(&cells::claim(table, row)[..3]);
            claims.rows.retain(|(table, row)| is_named(table, row));
        }
        if let Some(bound) = self.list.older_than {
            if let Some(summary) = &mut leases {
                summary.leases.retain(|lease| {
                    renewal::is_older(lease, bound) || renewal::can_be_older(lease, bound)
                });
                summary.counts.clear();
            }
            let is_older = |row: &ClaimedRow| row.remaining.is_zero() && row.expired >= bound;
            claims.rows.retain(|(_, row)| is_older(row));
        }
        Ok(Snapshot {
            leases,
            unread,
            claims,
            ..locks
        })
    }

    /// Refreshes until Ctrl-C, or until the output is closed.
    fn watch(&self, address: &str, every: Duration) -> Result<bool> {
        database::watch(address, every, &async |session: &mut Session| {
            let snapshot = self.snapshot(session, 0).await?;
            if self.list.answer.format == Format::Text {
                let picture = view::frame(&snapshot, screen::width(None), screen::height());
                return Ok(frame(&picture, every));
            }
            // The text form has it among its lines.
            if let Some(why) = &snapshot.unread {
                screen::note(&format!("{ERROR}error{ERROR:#}: {why}\n"));
            }
            Ok(json::line(&live_json::value(&snapshot)))
        })
    }
}

fn matches(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}

/// Returns `true` if the name of the lock contains this text, or the name of a session that holds
/// it, waits for it or has tried to get it.
fn is_named(locks: &Locks, lock: &Lock, filter: &str) -> bool {
    let waiters = lock.waiters.iter().map(|waiter| waiter.pid);
    let tries = lock.tries.iter().map(|one| one.pid);
    let mut sessions = tree::pids(lock).chain(waiters).chain(tries);
    matches(&label(lock.key, &lock.names), filter)
        || sessions.any(|pid| {
            let backend = locks.backend(pid);
            pid.to_string() == filter || backend.is_some_and(|it| matches(&cells::who(it), filter))
        })
}

/// At most this many held leases, and kept keys, are read one by one. The others are counted.
const LEASES: u32 = 1_000;

/// How often `--older-than` reads the locks again while the age of one is not known.
const RETRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The output of one refresh. On a terminal it replaces the previous one, and is cut to the
/// terminal's height.
fn frame(picture: &str, every: Duration) -> String {
    let Some(height) = screen::height() else {
        return format!("{picture}\n");
    };
    let columns = screen::width(None).unwrap_or(usize::MAX);
    let mut lines: Vec<String> = picture.lines().map(str::to_owned).collect();
    // A command can be wider than the terminal, which then continues it in the next line.
    let mut end = 0;
    let ends = lines.iter().map(|line| {
        end += display_width::height(line, columns);
        end
    });
    let ends: Vec<usize> = ends.collect();
    // One line is the head, and one has the cursor.
    let room = height.saturating_sub(2).max(1);
    if end > room {
        lines.truncate(ends.iter().filter(|end| **end < room).count());
        lines.push(format!("{DIM}… and more: `--filter` narrows it{DIM:#}"));
    }
    let every = duration::short(every);
    lines.insert(0, format!("\u{1b}[H{DIM}every {every}; Ctrl-C ends{DIM:#}"));
    lines.join("\u{1b}[K\n") + "\u{1b}[K\n\u{1b}[J"
}
