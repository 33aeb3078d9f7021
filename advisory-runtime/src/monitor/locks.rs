//! The advisory locks of a database at one moment: who holds each, who waits, and who blocks whom.

use super::names::{Certainty, Name, Names, of_tools};
use super::row::{Row, duration};
use super::{Activity, Backend, Comment, keys_of};
use crate::{Key, Mode};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The advisory locks of a database at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Locks {
    /// The database whose locks these are.
    pub database: String,
    /// The role that read them.
    pub role: String,
    /// Whether this role sees the activity of other roles' backends: whether it is a member of `pg_monitor` or of `pg_read_all_stats`.
    pub sees_all: bool,
    /// Every lock that is held or waited for, by key.
    pub locks: Vec<Lock>,
    /// Every backend that holds one, waits for one or blocks one that does, by process id.
    pub backends: Vec<Backend>,
}

/// One advisory lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lock {
    /// The number, or the two numbers.
    pub key: Key,
    /// Its names. None if it is not known; several if the inventory has two locks of one number, if backends differ in what they
    /// say, or if a query asks for several locks.
    pub names: Vec<Name>,
    /// Who holds it: one, or several in shared mode. None in the moment between two holders.
    pub holders: Vec<Holder>,
    /// Who waits for it, in the order of the queue.
    pub waiters: Vec<Waiter>,
    /// Sessions that tried to get it within the last half minute, without waiting and without success, the last one first: calls with `poll`, which ask
    /// again, and calls that never wait. A try is known while it is the session's last query, if this role sees that.
    pub tries: Vec<Try>,
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// A backend or a prepared transaction.
    pub id: HolderId,
    /// The mode in which it is held.
    pub mode: Mode,
    /// How long it is held, if that is known: `pg_locks` does not distinguish the scopes.
    pub scope: Option<Scope>,
}

/// What holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HolderId {
    /// A backend, by its process id.
    Backend(i32),
    /// A transaction that was prepared for a two-phase commit. It belongs to no session, and no timeout ends it: only
    /// `COMMIT PREPARED` and `ROLLBACK PREPARED` do.
    #[non_exhaustive]
    Prepared {
        /// Its global identifier.
        gid: String,
        /// The role that prepared it.
        owner: String,
        /// How long ago it was prepared.
        age: Duration,
    },
}

/// How long a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Until the end of its transaction.
    Xact,
    /// Until it is released, or its session ends.
    Session,
}

/// A waiter for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The backend.
    pub pid: i32,
    /// The mode that it asks for.
    pub mode: Mode,
    /// How long it has waited.
    pub waited: Duration,
    /// The holders that block it; 0 is a prepared transaction.
    pub held_by: Vec<i32>,
    /// The waiters ahead of it whose mode conflicts with its own. They are not the cause, but go first.
    pub behind: Vec<i32>,
}

/// A try to get a lock that somebody else holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Try {
    /// The backend.
    pub pid: i32,
    /// How long ago it was answered.
    pub ago: Duration,
}

impl Locks {
    /// Finds the backend with this process id.
    #[must_use]
    pub fn backend(&self, pid: i32) -> Option<&Backend> {
        let at = self
            .backends
            .binary_search_by_key(&pid, |backend| backend.pid);
        at.ok().map(|at| &self.backends[at])
    }

    pub(super) fn of(rows: Vec<Row>, names: &Names) -> Self {
        let mut backends = BTreeMap::new();
        let mut locks: BTreeMap<Key, Vec<Row>> = BTreeMap::new();
        let first = rows.first().cloned().unwrap_or_default();
        for row in rows {
            if let Some(pid) = row.pid {
                backends
                    .entry(pid)
                    .or_insert_with(|| Backend::of(pid, &row));
            }
            if let Some(key) = key(&row) {
                locks.entry(key).or_default().push(row);
            }
        }
        let locks = locks.into_iter().map(|(key, rows)| Lock {
            names: names.of_number(key),
            ..Lock::of(key, rows, &backends)
        });
        let locks = locks.collect();
        let mut seen = Self {
            database: first.database_name,
            role: first.role_name,
            sees_all: first.sees_all,
            locks,
            backends: backends.into_values().collect(),
        };
        seen.find_tries();
        seen.read_comments(names);
        for lock in seen.locks.iter_mut().filter(|lock| lock.names.is_empty()) {
            lock.names = of_tools(lock.key, Some(&seen.database));
        }
        seen.tell_scopes();
        seen
    }

    fn find_tries(&mut self) {
        for backend in &self.backends {
            let Activity::Visible {
                query, state_age, ..
            } = &backend.activity
            else {
                continue;
            };
            if !query.contains("pg_try_advisory") {
                continue;
            }
            let keys = keys_of(query);
            let is_asked = |lock: &&mut Lock| {
                keys.contains(&lock.key) && !lock.pids().any(|pid| pid == backend.pid)
            };
            for lock in self.locks.iter_mut().filter(is_asked) {
                lock.tries.push(Try {
                    pid: backend.pid,
                    ago: *state_age,
                });
                lock.tries.sort_by_key(|one| one.ago);
            }
        }
        // The others have got their lock and released it, or nobody holds it.
        let mut has_part: BTreeSet<i32> = self.locks.iter().flat_map(Lock::pids).collect();
        let tries = self.locks.iter().flat_map(|lock| &lock.tries);
        has_part.extend(tries.map(|one| one.pid));
        has_part.extend(self.backends.iter().flat_map(|one| &one.blocked_by));
        self.backends.retain(|one| has_part.contains(&one.pid));
    }

    /// Names the locks whose numbers say nothing by the comments in front of the queries that ask for them.
    fn read_comments(&mut self, names: &Names) {
        let comments: BTreeMap<i32, &Comment> = self
            .backends
            .iter()
            .filter_map(|backend| Some((backend.pid, backend.comment.as_ref()?)))
            .collect();
        for lock in self.locks.iter_mut().filter(|lock| lock.names.is_empty()) {
            // A call that waits for one of its keys names the others too.
            let is_of = |(pid, comment): &(&i32, &&Comment)| {
                comment.asks_for(lock.key) || lock.pids().any(|of_lock| of_lock == **pid)
            };
            let found: Vec<Name> = comments
                .iter()
                .filter(is_of)
                .flat_map(|(_, comment)| names.of_comment(lock.key, comment))
                .collect();
            let best = found.iter().map(|name| name.certainty).min();
            for name in found {
                if Some(name.certainty) == best && !lock.names.contains(&name) {
                    lock.names.push(name);
                }
            }
        }
    }

    fn tell_scopes(&mut self) {
        let backends = &self.backends;
        let is_idle = |pid: i32| backends.iter().any(|it| it.pid == pid && it.is_idle());
        for lock in &mut self.locks {
            let written = written_scope(&lock.names);
            for holder in &mut lock.holders {
                holder.scope = match holder.id {
                    HolderId::Prepared { .. } => Some(Scope::Xact),
                    HolderId::Backend(pid) if is_idle(pid) => Some(Scope::Session),
                    HolderId::Backend(_) => written,
                };
            }
        }
    }
}

impl Lock {
    fn of(key: Key, rows: Vec<Row>, backends: &BTreeMap<i32, Backend>) -> Self {
        let (held, awaited): (Vec<Row>, Vec<Row>) =
            rows.into_iter().partition(|row| row.granted == Some(true));
        let mut holders: Vec<Holder> = held.into_iter().map(Holder::of).collect();
        holders.sort_by_key(Holder::pid);
        let waiter = |row: Row| {
            let (pid, mode) = (row.pid?, mode(&row));
            let blocked_by = backends.get(&pid).map(|backend| &backend.blocked_by);
            let blocked_by: BTreeSet<i32> = blocked_by.into_iter().flatten().copied().collect();
            // A backend that holds the lock in shared mode and waits for the exclusive one is a holder and a waiter.
            let holds = |other: &i32| {
                let mut holders = holders.iter();
                holders.any(|holder| holder.pid() == *other && holder.mode.excludes(mode))
            };
            let (held_by, behind) = blocked_by.into_iter().partition(holds);
            let waited = duration(row.waited.unwrap_or(0));
            Some(Waiter {
                pid,
                mode,
                waited,
                held_by,
                behind,
            })
        };
        let mut waiters: Vec<Waiter> = awaited.into_iter().filter_map(waiter).collect();
        waiters.sort_by_key(|waiter| std::cmp::Reverse(waiter.waited));
        Self {
            key,
            names: Vec::new(),
            holders,
            waiters,
            tries: Vec::new(),
        }
    }

    /// The backends that hold it or wait for it.
    fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        let holders = self.holders.iter().filter_map(|holder| match holder.id {
            HolderId::Backend(pid) => Some(pid),
            HolderId::Prepared { .. } => None,
        });
        holders.chain(self.waiters.iter().map(|waiter| waiter.pid))
    }
}

impl Holder {
    fn of(row: Row) -> Self {
        let (mode, scope) = (mode(&row), None);
        let id = match row.pid {
            Some(pid) => HolderId::Backend(pid),
            None => HolderId::Prepared {
                gid: row.prepared.unwrap_or_default(),
                owner: row.prepared_by.unwrap_or_default(),
                age: duration(row.prepared_age.unwrap_or(0)),
            },
        };
        Self { id, mode, scope }
    }

    /// Its number in `pg_blocking_pids`.
    const fn pid(&self) -> i32 {
        match self.id {
            HolderId::Backend(pid) => pid,
            HolderId::Prepared { .. } => 0,
        }
    }
}

/// `pg_locks` has the halves as unsigned numbers: of one 64-bit key, or of two 32-bit keys.
fn key(row: &Row) -> Option<Key> {
    let (first, second) = (row.classid?, row.objid?);
    Some(if row.objsubid == Some(1) {
        let number = u64::from(first) << 32 | u64::from(second);
        Key::BigInt(number.cast_signed())
    } else {
        Key::IntInt(first.cast_signed(), second.cast_signed())
    })
}

fn mode(row: &Row) -> Mode {
    match row.mode.as_deref() {
        Some("ShareLock") => Mode::Shared,
        _ => Mode::Exclusive,
    }
}

/// The scope that all sites of the lock have, unless its name is only possible.
fn written_scope(names: &[Name]) -> Option<Scope> {
    let sites = names
        .iter()
        .filter(|name| name.certainty != Certainty::Possible)
        .flat_map(|name| &name.sites);
    let mut scopes = sites.map(|site| match site.scope.as_str() {
        "xact" => Some(Scope::Xact),
        "session" => Some(Scope::Session),
        _ => None,
    });
    let first = scopes.next()??;
    scopes.all(|scope| scope == Some(first)).then_some(first)
}

impl Activity {
    /// Whether the server hides it from this role.
    #[must_use]
    pub const fn is_hidden(&self) -> bool {
        matches!(self, Self::Hidden { .. })
    }
}
