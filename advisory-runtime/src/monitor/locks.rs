//! The advisory locks of a database at one moment: holders, waiters, and who blocks whom.

use super::comment::calls;
use super::names::{self, Certainty, Name, Names, of_tools};
use super::row::{LockRow, duration};
use super::{Activity, Backend, Comment, keys_of};
use crate::request::Scope;
use crate::{Key, Mode};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The age up to which a try without success is listed.
const LAST_TRIES: Duration = Duration::from_secs(30);

/// The advisory locks of a database at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Locks {
    /// Their database.
    pub database: String,
    /// The role that read them.
    pub role: String,
    /// The process id of the backend that read them. With a pooler it changes from call to call,
    /// and the backend can hold a session-level lock of a program that used it before.
    pub reader: i32,
    /// True if this role is a member of `pg_monitor` or of `pg_read_all_stats`, and so sees the
    /// activity of other roles' backends.
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
    /// Its names. Empty if none is known; several if the inventory has two locks of one number, if
    /// backends give it different names, or if a query asks for several locks.
    pub names: Vec<Name>,
    /// Its holders: one, or several in shared mode. Empty in the moment between two holders.
    pub holders: Vec<Holder>,
    /// Its waiters, in the order of the queue.
    pub waiters: Vec<Waiter>,
    /// Sessions that tried to get it within the last half minute, without waiting and without
    /// success, the last one first: calls with `poll`, and calls that never wait. A try is known
    /// while it is the session's last query and this role may see that query.
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
    /// The scope, if it is known: `pg_locks` does not have it. The lock of an idle session is
    /// session-level. Otherwise the scope comes from the statement that asked for the lock, while
    /// it is the session's last one, or from the lock sites of the lock's name.
    pub scope: Option<Scope>,
    /// The least time for which it has been held: for a session that runs no statement, the time
    /// since its last one; for a prepared transaction, the time since it was prepared. `None` if
    /// that is not known, such as for a session that runs a statement.
    ///
    /// The server does not record when a lock was granted.
    pub held_at_least: Option<Duration>,
    /// The longest time for which it can have been held: for a transaction-level lock, the age of
    /// the transaction; for another, the age of the session. `None` if that is not known, such as
    /// if this role may not see it.
    pub held_at_most: Option<Duration>,
}

/// The identity of a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HolderId {
    /// A backend, by its process id.
    Backend(i32),
    /// A transaction that was prepared for a two-phase commit. It belongs to no session, and no
    /// timeout ends it: only `COMMIT PREPARED` and `ROLLBACK PREPARED` do.
    #[non_exhaustive]
    Prepared {
        /// Its global identifier.
        gid: String,
        /// The role that prepared it.
        owner: String,
        /// The time since it was prepared.
        age: Duration,
    },
}

/// A waiter for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The backend.
    pub pid: i32,
    /// The mode that it asks for.
    pub mode: Mode,
    /// The time that it has waited.
    pub waited: Duration,
    /// The holders that block it; 0 is a prepared transaction.
    pub held_by: Vec<i32>,
    /// The waiters ahead of it that ask for a conflicting mode. They get the lock first.
    pub behind: Vec<i32>,
}

/// A try to get a lock that somebody else holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Try {
    /// The backend.
    pub pid: i32,
    /// The time since it was answered.
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

    pub(super) fn of(rows: Vec<LockRow>, names: &Names) -> Self {
        let mut backends = BTreeMap::new();
        let mut locks: BTreeMap<Key, Vec<LockRow>> = BTreeMap::new();
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
            reader: first.reader,
            sees_all: first.sees_all,
            locks,
            backends: backends.into_values().collect(),
        };
        seen.find_tries();
        seen.read_comments(names);
        for lock in seen.locks.iter_mut().filter(|lock| lock.names.is_empty()) {
            lock.names = of_tools(lock.key, Some(&seen.database));
        }
        seen.find_scopes_and_ages();
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
            if !query.contains("pg_try_advisory") || *state_age > LAST_TRIES {
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
        // Drops those that have got their lock and released it.
        let mut has_part: BTreeSet<i32> = self.locks.iter().flat_map(Lock::pids).collect();
        let tries = self.locks.iter().flat_map(|lock| &lock.tries);
        has_part.extend(tries.map(|one| one.pid));
        has_part.extend(self.backends.iter().flat_map(|one| &one.blocked_by));
        self.backends.retain(|one| has_part.contains(&one.pid));
    }

    /// Names locks by the comments in front of the queries that ask for them, if their numbers do
    /// not name them for certain.
    fn read_comments(&mut self, names: &Names) {
        let comments: BTreeMap<i32, &Comment> = self
            .backends
            .iter()
            .filter_map(|backend| Some((backend.pid, backend.comment.as_ref()?)))
            .collect();
        let is_open = |lock: &&mut Lock| !names::are_certain(&lock.names);
        for lock in self.locks.iter_mut().filter(is_open) {
            // A call that waits for one of its keys names the others too.
            let is_of = |(pid, comment): &(&i32, &&Comment)| {
                comment.asks_for(lock.key) || lock.pids().any(|of_lock| of_lock == **pid)
            };
            let found: Vec<Name> = comments
                .iter()
                .filter(is_of)
                .flat_map(|(_, comment)| names.of_comment(lock.key, comment))
                .collect();
            names::prefer(&mut lock.names, found);
        }
    }

    fn find_scopes_and_ages(&mut self) {
        let backends: BTreeMap<i32, &Backend> =
            self.backends.iter().map(|it| (it.pid, it)).collect();
        for lock in &mut self.locks {
            let written = written_scope(&lock.names);
            for holder in &mut lock.holders {
                let pid = match &holder.id {
                    HolderId::Backend(pid) => pid,
                    HolderId::Prepared { age, .. } => {
                        (holder.scope, holder.held_at_least) = (Some(Scope::Xact), Some(*age));
                        continue;
                    }
                };
                let Some(backend) = backends.get(pid) else {
                    holder.scope = written;
                    continue;
                };
                let asked = match &backend.activity {
                    Activity::Visible { query, .. } => asked_scope(query, lock.key),
                    Activity::Hidden { .. } | Activity::Gone => None,
                };
                let idle = backend.is_idle().then_some(Scope::Session);
                holder.scope = idle.or(asked).or(written);
                holder.held_at_least = backend.silent_for();
                let in_transaction = backend.transaction_age();
                let in_transaction = in_transaction.filter(|_| holder.scope == Some(Scope::Xact));
                holder.held_at_most = in_transaction.or(backend.age);
            }
        }
    }
}

impl Lock {
    fn of(key: Key, rows: Vec<LockRow>, backends: &BTreeMap<i32, Backend>) -> Self {
        let (held, awaited): (Vec<LockRow>, Vec<LockRow>) =
            rows.into_iter().partition(|row| row.granted == Some(true));
        let mut holders: Vec<Holder> = held.into_iter().map(Holder::of).collect();
        holders.sort_by_key(Holder::pid);
        let waiter = |row: LockRow| {
            let (pid, mode) = (row.pid?, mode(&row));
            let blocked_by = backends.get(&pid).map(|backend| &backend.blocked_by);
            let blocked_by: BTreeSet<i32> = blocked_by.into_iter().flatten().copied().collect();
            // A backend that holds the lock in shared mode and waits for the exclusive one is both
            // a holder and a waiter.
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

    fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        let holders = self.holders.iter().filter_map(|holder| match holder.id {
            HolderId::Backend(pid) => Some(pid),
            HolderId::Prepared { .. } => None,
        });
        holders.chain(self.waiters.iter().map(|waiter| waiter.pid))
    }
}

impl Holder {
    fn of(row: LockRow) -> Self {
        let (mode, scope) = (mode(&row), None);
        let id = match row.pid {
            Some(pid) => HolderId::Backend(pid),
            None => HolderId::Prepared {
                gid: row.prepared.unwrap_or_default(),
                owner: row.prepared_by.unwrap_or_default(),
                age: duration(row.prepared_age.unwrap_or(0)),
            },
        };
        Self {
            id,
            mode,
            scope,
            held_at_least: None,
            held_at_most: None,
        }
    }

    /// Its number in `pg_blocking_pids`.
    const fn pid(&self) -> i32 {
        match self.id {
            HolderId::Backend(pid) => pid,
            HolderId::Prepared { .. } => 0,
        }
    }
}

/// Returns the key, which `pg_locks` has as two unsigned numbers of 32 bits.
fn key(row: &LockRow) -> Option<Key> {
    let (first, second) = (row.classid?, row.objid?);
    match row.objsubid? {
        1 => {
            let number = u64::from(first) << 32 | u64::from(second);
            Some(Key::BigInt(number.cast_signed()))
        }
        2 => Some(Key::IntInt(first.cast_signed(), second.cast_signed())),
        _ => None,
    }
}

fn mode(row: &LockRow) -> Mode {
    match row.mode.as_deref() {
        Some("ShareLock") => Mode::Shared,
        _ => Mode::Exclusive,
    }
}

/// Returns the scope in which a query asks for a key, unless it does so in both.
fn asked_scope(query: &str, key: Key) -> Option<Scope> {
    let calls = calls(query).filter(|(_, of)| *of == key);
    same(calls.map(|(name, _)| {
        if name.contains("_xact_") {
            Scope::Xact
        } else {
            Scope::Session
        }
    }))
}

fn written_scope(names: &[Name]) -> Option<Scope> {
    let sites = names
        .iter()
        .filter(|name| name.certainty != Certainty::Possible)
        .flat_map(|name| &name.sites);
    let scopes = sites.map(|site| match site.scope.as_str() {
        "xact" => Some(Scope::Xact),
        "session" => Some(Scope::Session),
        _ => None,
    });
    same(scopes).flatten()
}

/// The one value that all items have.
fn same<T: PartialEq>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let first = items.next()?;
    items.all(|item| item == first).then_some(first)
}

impl Activity {
    /// True if the server hides it from this role.
    #[must_use]
    pub const fn is_hidden(&self) -> bool {
        matches!(self, Self::Hidden { .. })
    }
}
