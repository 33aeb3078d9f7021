//! The advisory locks of a database at one moment: who holds each, who waits, and who blocks whom.

use super::names::{Certainty, Name, Names};
use super::row::{Row, duration};
use super::{Activity, Backend};
use crate::{Key, Mode};
use std::collections::BTreeMap;
use std::time::Duration;

/// The advisory locks of a database at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Locks {
    /// The database that was looked at.
    pub database: String,
    /// The role that looked.
    pub role: String,
    /// Whether this role sees what others' backends do: whether it is a member of `pg_monitor`, or of `pg_read_all_stats`.
    pub sees_all: bool,
    /// Every lock that is held or waited for, by key.
    pub locks: Vec<Lock>,
    /// Every backend that holds one, waits for one, or stands in the way of one that does, by process id.
    pub backends: Vec<Backend>,
}

/// One advisory lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lock {
    /// The number, or the two numbers.
    pub key: Key,
    /// What it is called. None where nobody knows; several where the inventory has two locks of one number, or where backends
    /// differ in what they say.
    pub names: Vec<Name>,
    /// Who holds it: one, or several with a shared lock. None in the moment between two.
    pub holders: Vec<Holder>,
    /// Who waits for it, in the order in which they came.
    pub waiters: Vec<Waiter>,
}

/// One who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// A backend, or what one has left.
    pub by: By,
    /// How it is held.
    pub mode: Mode,
    /// How long it is held, where that is known: the server itself does not tell one from the other.
    pub scope: Option<Scope>,
}

/// What holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// A backend, by its process id.
    Backend(i32),
    /// A transaction that was prepared for a two-phase commit: no session has it, and no time-out ends it. Only
    /// `COMMIT PREPARED` or `ROLLBACK PREPARED` does.
    #[non_exhaustive]
    Prepared {
        /// Its name.
        gid: String,
        /// Whose it is.
        owner: String,
        /// How long ago it was prepared.
        age: Duration,
    },
}

/// How long a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// To the end of its transaction.
    Xact,
    /// Until it is released, or its session ends.
    Session,
}

/// One who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The backend.
    pub pid: i32,
    /// How it wants to hold it.
    pub mode: Mode,
    /// For how long it has waited.
    pub waited: Duration,
    /// The backends that hold the lock in its way; 0 is a prepared transaction.
    pub held_by: Vec<i32>,
    /// Those who came earlier and want it in a way that excludes this one. They are no cause, but they go first.
    pub behind: Vec<i32>,
}

impl Locks {
    /// The backend of this process id.
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
                    .or_insert_with(|| Backend::of(pid, &row, names));
            }
            if let Some(key) = key(&row) {
                locks.entry(key).or_default().push(row);
            }
        }
        let locks = locks.into_iter().map(|(key, rows)| {
            let mut lock = Lock::of(key, rows, &backends);
            lock.names = names.of_number(key);
            lock
        });
        let locks = locks.collect();
        let mut seen = Self {
            database: first.database_name,
            role: first.role_name,
            sees_all: first.sees_all,
            locks,
            backends: backends.into_values().collect(),
        };
        seen.ask_backends(names);
        seen.tell_scopes();
        seen
    }

    /// Names the locks whose numbers say nothing by what their backends say.
    fn ask_backends(&mut self, names: &Names) {
        // How many locks a backend has to do with that have no name of their own; its word is about the last of them.
        let mut nameless: BTreeMap<i32, usize> = BTreeMap::new();
        for lock in self.locks.iter().filter(|lock| lock.names.is_empty()) {
            let mut pids: Vec<i32> = lock.pids().collect();
            pids.sort_unstable();
            pids.dedup();
            for pid in pids {
                *nameless.entry(pid).or_default() += 1;
            }
        }
        let word = |pid: i32| {
            let at = self
                .backends
                .binary_search_by_key(&pid, |backend| backend.pid);
            at.ok()
                .and_then(|at| self.backends[at].application.key.as_ref())
        };
        for lock in &mut self.locks {
            if !lock.names.is_empty() {
                continue;
            }
            let mut said = Vec::new();
            for pid in lock.pids() {
                let is_awaited = lock.waiters.iter().any(|waiter| waiter.pid == pid);
                let is_only = nameless.get(&pid) == Some(&1);
                let certainty = if is_awaited || is_only {
                    Certainty::Likely
                } else {
                    Certainty::OneOf
                };
                if let Some(word) = word(pid) {
                    said.extend(names.of_said(lock.key, word, certainty));
                }
            }
            let best = said.iter().map(|name| name.certainty).min();
            for name in said {
                let is_new = !lock.names.iter().any(|given| given.key == name.key);
                if Some(name.certainty) == best && is_new {
                    lock.names.push(name);
                }
            }
        }
    }

    fn tell_scopes(&mut self) {
        let (locks, backends) = (&mut self.locks, &self.backends);
        for lock in locks {
            let written = written_scope(&lock.names);
            for holder in &mut lock.holders {
                holder.scope = match holder.by {
                    By::Prepared { .. } => Some(Scope::Xact),
                    By::Backend(pid) if backends.iter().any(|it| it.pid == pid && it.is_idle()) => {
                        Some(Scope::Session)
                    }
                    By::Backend(_) => written,
                };
            }
        }
    }
}

impl Lock {
    fn of(key: Key, rows: Vec<Row>, backends: &BTreeMap<i32, Backend>) -> Self {
        let mut lock = Self {
            key,
            names: Vec::new(),
            holders: Vec::new(),
            waiters: Vec::new(),
        };
        let (held, awaited): (Vec<Row>, Vec<Row>) = rows
            .into_iter()
            .partition(|row| row.granted.unwrap_or(false));
        for row in held {
            let (mode, scope) = (mode(&row), None);
            let by = match row.pid {
                Some(pid) => By::Backend(pid),
                None => By::Prepared {
                    gid: row.prepared.unwrap_or_default(),
                    owner: row.prepared_by.unwrap_or_default(),
                    age: duration(row.prepared_age.unwrap_or(0)),
                },
            };
            lock.holders.push(Holder { by, mode, scope });
        }
        lock.holders.sort_by_key(Holder::pid);
        for row in awaited {
            let Some(pid) = row.pid else { continue };
            let waited = duration(row.waited.unwrap_or(0));
            let mode = mode(&row);
            let mut blocked_by = backends
                .get(&pid)
                .map_or_else(Vec::new, |backend| backend.blocked_by.clone());
            blocked_by.sort_unstable();
            blocked_by.dedup();
            // Who holds it shared and waits to hold it alone is both.
            let holds = |other: &i32| {
                lock.holders
                    .iter()
                    .any(|holder| holder.pid() == *other && excludes(holder.mode, mode))
            };
            let (held_by, behind) = blocked_by.into_iter().partition(holds);
            lock.waiters.push(Waiter {
                pid,
                mode,
                waited,
                held_by,
                behind,
            });
        }
        lock.waiters
            .sort_by_key(|waiter| std::cmp::Reverse(waiter.waited));
        lock
    }

    /// Every backend that holds it or waits for it.
    fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        let holders = self.holders.iter().filter_map(|holder| match holder.by {
            By::Backend(pid) => Some(pid),
            By::Prepared { .. } => None,
        });
        holders.chain(self.waiters.iter().map(|waiter| waiter.pid))
    }
}

impl Holder {
    /// As `pg_blocking_pids` has it.
    const fn pid(&self) -> i32 {
        match self.by {
            By::Backend(pid) => pid,
            By::Prepared { .. } => 0,
        }
    }
}

const fn excludes(held: Mode, wanted: Mode) -> bool {
    !matches!((held, wanted), (Mode::Shared, Mode::Shared))
}

/// The halves are shown as unsigned numbers; together they are one of 64 bits, or two of 32.
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

/// What all sites of the lock say, where its name is more than a guess.
fn written_scope(names: &[Name]) -> Option<Scope> {
    let sites = names
        .iter()
        .filter(|name| name.certainty != Certainty::OneOf)
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
    /// Whether this role may see it.
    #[must_use]
    pub const fn is_hidden(&self) -> bool {
        matches!(self, Self::Hidden { .. })
    }
}
