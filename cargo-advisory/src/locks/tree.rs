//! The tree of locks: a lock, its waiters, and the locks that these hold in turn.
//!
//! The roots are the causes: locks with holders that wait for no other lock. The locks that a
//! waiter holds are below it, and their waiters below them. Each lock is in the tree once, even in
//! a deadlock. Locks of one session that differ only in their numbers, and for which nobody waits,
//! are one line.

use std::collections::{BTreeMap, BTreeSet};

use advisory_runtime::Mode;
use advisory_runtime::monitor::{HolderId, Lock, Locks, Scope};

use super::cells::{Row, holder_row, label, lock_kind, names, session_row};
use crate::duration::short;

/// The common part of locks of one session that differ only in their numbers: the process id, the
/// name, `true` if they are session-level, and `true` if they are shared.
type GroupKey = (i32, String, bool, bool);

/// More locks than this that differ only in their numbers are one line.
const ALONE: usize = 3;

struct Tree<'l> {
    locks: &'l Locks,
    /// The wanted locks that each process holds.
    held: BTreeMap<i32, Vec<usize>>,
    groups: BTreeMap<GroupKey, Vec<usize>>,
    shown: BTreeSet<usize>,
    blockers: BTreeSet<i32>,
    rows: Vec<Row>,
}

/// Orders the wanted locks. The one with the longest wait comes first. Those for which nobody waits
/// are ordered by process.
pub(super) fn rows(locks: &Locks, wanted: &[usize], is_grouped: bool) -> Vec<Row> {
    let mut groups: BTreeMap<GroupKey, Vec<usize>> = BTreeMap::new();
    for at in wanted.iter().filter(|_| is_grouped) {
        if let Some(key) = group_key(&locks.locks[*at]) {
            groups.entry(key).or_default().push(*at);
        }
    }
    groups.retain(|_, group| group.len() > ALONE);
    let mut held: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
    for at in wanted {
        for pid in pids(&locks.locks[*at]) {
            held.entry(pid).or_default().push(*at);
        }
    }
    let mut tree = Tree {
        locks,
        held,
        groups,
        shown: BTreeSet::new(),
        blockers: BTreeSet::new(),
        rows: Vec::new(),
    };
    let mut order = wanted.to_vec();
    order.sort_by_key(|at| {
        let lock = &locks.locks[*at];
        let longest = lock.waiters.first().map(|waiter| waiter.waited);
        (std::cmp::Reverse(longest), pids(lock).next())
    });
    let waiters = wanted.iter().flat_map(|at| &locks.locks[*at].waiters);
    let waiting: BTreeSet<i32> = waiters.map(|waiter| waiter.pid).collect();
    let is_cause = |at: &&usize| !pids(&locks.locks[**at]).any(|pid| waiting.contains(&pid));
    // Those that are not below a cause are in a cycle.
    for at in order.iter().filter(is_cause).chain(&order) {
        tree.lock(*at, "", "");
    }
    tree.rows
}

/// The group of a lock that one session holds and nobody else asks for.
fn group_key(lock: &Lock) -> Option<GroupKey> {
    let [holder] = &lock.holders[..] else {
        return None;
    };
    let pid = pids(lock).next()?;
    let is_alone = lock.waiters.is_empty() && lock.tries.is_empty();
    let is_session = holder.scope == Some(Scope::Session);
    let is_shared = holder.mode == Mode::Shared;
    is_alone.then(|| (pid, names(&lock.names), is_session, is_shared))
}

/// The sessions that hold a lock.
pub(super) fn pids(lock: &Lock) -> impl Iterator<Item = i32> + '_ {
    lock.holders.iter().filter_map(|holder| match holder.id {
        HolderId::Backend(pid) => Some(pid),
        _ => None,
    })
}

impl Tree<'_> {
    /// `first` is drawn before the lock, `rest` before what is below it.
    fn lock(&mut self, at: usize, first: &str, rest: &str) {
        if !self.shown.insert(at) {
            return;
        }
        let (locks, lock) = (self.locks, &self.locks.locks[at]);
        let group = group_key(lock).and_then(|key| self.groups.get(&key));
        let name = match (group, &*names(&lock.names)) {
            (Some(group), "") => format!("{} locks without a name", group.len()),
            (Some(group), named) => format!("{named}: {} locks", group.len()),
            (None, _) => label(lock.key, &lock.names),
        };
        let row = holder_row(locks, format!("{first}{name}"), lock.holders.first());
        self.rows.push(row);
        if let Some(group) = group {
            self.shown.extend(group);
            return;
        }
        for holder in lock.holders.iter().skip(1) {
            let label = format!("{rest}also held by");
            self.rows.push(holder_row(locks, label, Some(holder)));
        }
        for pid in pids(lock) {
            self.push_blockers(pid, rest);
        }
        let mut left = lock.waiters.len() + lock.tries.len();
        let mut branch = || {
            left -= 1;
            match left {
                0 => ("└─ ", "   "),
                _ => ("├─ ", "│  "),
            }
        };
        for waiter in &lock.waiters {
            let ((branch, below), waited) = (branch(), short(waiter.waited));
            let mode = match waiter.mode {
                Mode::Exclusive => "",
                Mode::Shared => ", shared",
            };
            let label = format!("{rest}{branch}waits {waited}{mode}");
            self.rows.push(session_row(locks, label, waiter.pid));
            let below = format!("{rest}{below}");
            for at in self.held.get(&waiter.pid).cloned().unwrap_or_default() {
                self.lock(at, &below, &below);
            }
        }
        for one in &lock.tries {
            let label = format!("{rest}{}tried, {} ago", branch().0, short(one.ago));
            self.rows.push(session_row(locks, label, one.pid));
        }
    }

    /// Adds the backends that block this one with locks on rows or tables, and those that block
    /// them in turn.
    fn push_blockers(&mut self, pid: i32, before: &str) {
        let Some(backend) = self.locks.backend(pid) else {
            return;
        };
        let kind = backend.waits_for.as_deref();
        let Some(kind) = kind.filter(|kind| *kind != "advisory") else {
            return;
        };
        for pid in backend.blocked_by.iter().copied() {
            if self.blockers.insert(pid) {
                let label = format!("{before}held up by a {} lock of", lock_kind(kind));
                self.rows.push(session_row(self.locks, label, pid));
                self.push_blockers(pid, before);
            }
        }
    }
}
