//! The sessions at the root of the waits, each with the command that ends it.
//!
//! A cause is a session that others wait for and that waits for nobody itself. Ending one of the
//! waiters frees nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use advisory_runtime::monitor::{Activity, Holder, HolderId, Lock, Locks, Scope, State};

use super::Snapshot;
use super::cells::{UNTRACKED, has_transaction, who};
use crate::database::literal;
use crate::display_width::{cut, wrapped};
use crate::duration::short;
use crate::screen::{BOLD, DIM, KEY};
use crate::text::{joined, one_line, plural};

const MOST: usize = 5;
const WIDTH: usize = 100;

/// The end of a chain of waits: the cause.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Root {
    Session(i32),
    /// A prepared transaction, by its name; `None` if it blocks by a lock on a row or a table.
    Prepared(Option<String>),
    /// Sessions that wait for each other.
    Circle(BTreeSet<i32>),
}

/// The sessions that a cause holds up.
#[derive(Default)]
struct HeldUp {
    /// Those that wait, with how long each has waited.
    waited: BTreeMap<i32, Duration>,
    /// Those that have tried to get the lock, with how long ago. They may try again.
    tried: BTreeMap<i32, Duration>,
}

/// Finds the causes. The one with the longest wait comes first. Without waiters a session is a
/// cause if `--older-than` selects its lock, or if a program has left the lock on a pooler's
/// session.
fn find(snapshot: &Snapshot) -> Vec<(Root, HeldUp)> {
    let locks = &snapshot.locks;
    let mut causes: BTreeMap<Root, HeldUp> = BTreeMap::new();
    for lock in snapshot.wanted() {
        let is_alone = lock.waiters.is_empty() && lock.tries.is_empty();
        for holder in &lock.holders {
            let is_left =
                matches!(holder.id, HolderId::Backend(pid) if snapshot.pooled.contains(&pid));
            if is_alone && snapshot.older_than.is_none() && !is_left {
                continue;
            }
            for root in roots_of(locks, holder) {
                let others = causes.entry(root).or_default();
                for waiter in &lock.waiters {
                    let longest = others.waited.entry(waiter.pid).or_default();
                    *longest = (*longest).max(waiter.waited);
                }
                for one in &lock.tries {
                    let last = others.tried.entry(one.pid).or_insert(one.ago);
                    *last = (*last).min(one.ago);
                }
            }
        }
    }
    let mut causes: Vec<(Root, HeldUp)> = causes.into_iter().collect();
    causes.sort_by_key(|(_, held_up)| {
        let counts = (held_up.waited.len(), held_up.tried.len());
        std::cmp::Reverse((longest(held_up), counts))
    });
    causes
}

fn longest(held_up: &HeldUp) -> Duration {
    held_up.waited.values().max().copied().unwrap_or_default()
}

/// The ends of a holder's chain of waits, or the holder itself.
fn roots_of(locks: &Locks, holder: &Holder) -> BTreeSet<Root> {
    let pid = match &holder.id {
        HolderId::Backend(pid) => *pid,
        HolderId::Prepared { gid, .. } => return [Root::Prepared(Some(gid.clone()))].into(),
        _ => return BTreeSet::new(),
    };
    let mut seen = before(locks, pid);
    seen.insert(pid);
    let ends = seen.iter().filter(|pid| blockers(locks, **pid).is_empty());
    let ends = ends.map(|pid| match pid {
        0 => Root::Prepared(None),
        pid => Root::Session(*pid),
    });
    let mut roots: BTreeSet<Root> = ends.collect();
    // A prepared transaction that holds an advisory lock has a name.
    if roots.contains(&Root::Prepared(None)) {
        let is_seen = |lock: &&Lock| lock.waiters.iter().any(|it| seen.contains(&it.pid));
        let held = locks.locks.iter().filter(is_seen);
        let holders = held.flat_map(|lock| &lock.holders);
        let named = holders.filter_map(|holder| match &holder.id {
            HolderId::Prepared { gid, .. } => Some(Root::Prepared(Some(gid.clone()))),
            _ => None,
        });
        let named: Vec<Root> = named.collect();
        if !named.is_empty() {
            roots.remove(&Root::Prepared(None));
            roots.extend(named);
        }
    }
    if roots.is_empty() {
        roots = circles(locks, &seen);
    }
    roots
}

/// The sessions that block this one; 0 is a prepared transaction.
fn blockers(locks: &Locks, pid: i32) -> &[i32] {
    let backend = locks.backend(pid);
    backend.map_or(&[], |backend| &backend.blocked_by)
}

/// The sessions that this one waits for, directly or behind others. It is itself among them if they
/// wait for each other.
fn before(locks: &Locks, pid: i32) -> BTreeSet<i32> {
    let (mut reached, mut next) = (BTreeSet::new(), blockers(locks, pid).to_vec());
    while let Some(pid) = next.pop() {
        if reached.insert(pid) {
            next.extend(blockers(locks, pid));
        }
    }
    reached
}

/// The sessions that wait for each other, without the sessions that only wait for one of them. Each
/// session that one of `pids` waits for is in `pids` too.
fn circles(locks: &Locks, pids: &BTreeSet<i32>) -> BTreeSet<Root> {
    let reached: BTreeMap<i32, _> = pids.iter().map(|pid| (*pid, before(locks, *pid))).collect();
    let circles = reached.iter().map(|(pid, others)| {
        let both_ways = others.iter().filter(|other| reached[other].contains(pid));
        both_ways.copied().collect::<BTreeSet<i32>>()
    });
    let circles = circles.filter(|circle| !circle.is_empty());
    circles.map(Root::Circle).collect()
}

/// Writes the causes, each with its state, the command that ends it, and the effect of the command.
pub(super) fn text(snapshot: &Snapshot, width: Option<usize>) -> String {
    let causes = find(snapshot);
    let mut text = String::new();
    for (root, held_up) in causes.iter().take(MOST) {
        match root {
            Root::Session(pid) => session(&mut text, snapshot, *pid, held_up, width),
            Root::Prepared(gid) => prepared(&mut text, gid.as_deref(), held_up),
            Root::Circle(pids) => {
                text.push_str(&joined(pids, " and "));
                text.push_str(
                    " wait for each other. The server ends one of them after `deadlock_timeout`.\n",
                );
            }
        }
        text.push('\n');
    }
    if let Some(rest) = causes.len().checked_sub(MOST).filter(|rest| *rest > 0) {
        let hold = if rest == 1 { "holds" } else { "hold" };
        let _ = writeln!(
            text,
            "{} {hold} up others: `--filter` and `--format json` show them.\n",
            plural(rest, "more session")
        );
    }
    wrapped(&text, width)
}

/// ` holds up 2 sessions, the first for 38s`, ` has a lock that 1 session tried to get, 3.2s ago`
fn holds_up(held_up: &HeldUp) -> String {
    let time = short(longest(held_up));
    let last = short(held_up.tried.values().min().copied().unwrap_or_default());
    let tried = match held_up.tried.len() {
        0 => String::new(),
        1 => format!("that 1 session tried to get, {last} ago"),
        count => format!("that {count} sessions tried to get, the last {last} ago"),
    };
    let waits = match held_up.waited.len() {
        0 if tried.is_empty() => return " holds an old lock".to_owned(),
        0 => return format!(" has a lock {tried}"),
        1 => format!(" holds up 1 session, for {time}"),
        count => format!(" holds up {count} sessions, the first for {time}"),
    };
    if tried.is_empty() {
        return waits;
    }
    format!("{waits}, and has one {tried}")
}

fn session(
    text: &mut String,
    snapshot: &Snapshot,
    pid: i32,
    held_up: &HeldUp,
    width: Option<usize>,
) {
    let locks = &snapshot.locks;
    let Some(backend) = locks.backend(pid) else {
        return;
    };
    let is_pooled = snapshot.pooled.contains(&pid);
    let what = if is_pooled {
        " is a session of a pooler, on which this command ran too: which program left its locks there is not known.".to_owned()
    } else {
        format!("  {}{}", who(backend), holds_up(held_up))
    };
    let _ = writeln!(text, "{BOLD}{pid}{BOLD:#}{what}");
    let holders = locks.locks.iter().flat_map(|lock| &lock.holders);
    let own = holders.filter(|holder| holder.id == HolderId::Backend(pid));
    let scopes: Vec<Option<Scope>> = own.map(|holder| holder.scope).collect();
    let released = match scopes.len() {
        0 => "its locks on rows and tables are released".to_owned(),
        1 => "its lock is released".to_owned(),
        count => format!("its {count} locks are released"),
    };
    let mut can_cancel = false;
    if let Activity::Visible {
        state,
        state_age,
        query,
        ..
    } = &backend.activity
    {
        let age = short(*state_age);
        let said = match state {
            State::Active => format!("runs a statement for {age}"),
            State::Idle if is_pooled => String::new(),
            State::Idle => {
                format!("idle for {age}, with a session-level lock that it has not released")
            }
            State::IdleInTransaction => format!(
                "idle in transaction for {age}: its client has stopped, or waits for something else"
            ),
            State::IdleInFailedTransaction => format!(
                "idle for {age} in a transaction that has failed: its client has not rolled back"
            ),
            State::Disabled => UNTRACKED.to_owned(),
            other => one_line(&other.to_string()),
        };
        let is_active = *state == State::Active;
        can_cancel = is_active && !scopes.contains(&Some(Scope::Session));
        if !said.is_empty() {
            let _ = writeln!(text, "    {said}");
        }
        let room = width.unwrap_or(WIDTH).saturating_sub(20).max(20);
        let statement = cut(&one_line(query), room);
        if !statement.is_empty() {
            let last = if is_active { "" } else { "last " };
            let _ = writeln!(text, "    {DIM}{last}statement: {statement}{DIM:#}");
        }
    }
    let word = if can_cancel { "cancel" } else { "terminate" };
    let _ = writeln!(text, "    {KEY}cargo advisory locks {word} {pid}{KEY:#}");
    if can_cancel {
        // If the session has run another statement since, the server no longer shows how it took
        // the lock.
        let released = if scopes.contains(&None) {
            ", which releases a transaction-level lock. If the lock stays, `terminate` releases it"
                .to_owned()
        } else {
            format!("; then {released}")
        };
        let _ = writeln!(
            text,
            "        ends the statement: its client gets an error and has to roll back{released}"
        );
        return;
    }
    let rolled_back = match has_transaction(&backend.activity) {
        Some(true) => "its transaction is rolled back, ",
        Some(false) => "",
        None => "a transaction that is open is rolled back, ",
    };
    let _ = writeln!(
        text,
        "        ends its session: {rolled_back}{released}, and its client gets an error"
    );
}

fn prepared(text: &mut String, gid: Option<&str>, held_up: &HeldUp) {
    let (name, way) = match gid.map(|gid| literal(&one_line(gid))) {
        Some(gid) => (
            format!(" {gid}"),
            format!(
                "{KEY}ROLLBACK PREPARED {gid};{KEY:#}\n        \
                 undoes it and releases its locks, in psql on this database; COMMIT PREPARED {gid} keeps its writes"
            ),
        ),
        None => (
            String::new(),
            format!(
                "{KEY}SELECT gid, owner, prepared FROM pg_prepared_xacts WHERE database = current_database();{KEY:#}\n        \
                 gives its name; then, in the same database, ROLLBACK PREPARED with that name"
            ),
        ),
    };
    let _ = writeln!(
        text,
        "{BOLD}The prepared transaction{name}{BOLD:#}{}\n    \
         a two-phase commit was not finished; no session holds it\n    {way}",
        holds_up(held_up)
    );
}
