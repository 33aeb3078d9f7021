//! The tree of locks: a lock, its waiters, and the locks that these hold in turn.
//!
//! The roots are the causes: locks with holders that wait for no other lock. The locks that a
//! waiter holds are below it, and their waiters below them. Each lock is in the tree once, even in
//! a deadlock. Locks of one session that differ only in their numbers, and for which nobody waits,
//! are one line.

use std::collections::{BTreeMap, BTreeSet};

use advisory_runtime::Mode;
use advisory_runtime::monitor::{Holder, HolderId, Lock, Locks, Scope, Try, Waiter};

use super::lock_name::names;

pub(crate) struct Line<'l> {
    pub(crate) branch: String,
    pub(crate) content: Content<'l>,
}

pub(crate) enum Content<'l> {
    /// A lock and its first holder.
    Lock(&'l Lock, Option<&'l Holder>),
    /// Several locks of one session that have one name, or none: the first of them, and their
    /// number.
    Group(&'l Lock, usize),
    OtherHolder(&'l Holder),
    Waiter(&'l Waiter),
    /// A backend that has tried to get the lock above.
    Try(&'l Try),
    /// A backend that blocks the one above with a lock of this kind.
    Blocker {
        pid: i32,
        kind: &'l str,
    },
}

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
    lines: Vec<Line<'l>>,
}

/// Orders the wanted locks. The one with the longest wait comes first. Those for which nobody waits
/// are ordered by process.
pub(crate) fn lines<'l>(locks: &'l Locks, wanted: &'l [usize], is_grouped: bool) -> Vec<Line<'l>> {
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
        lines: Vec::new(),
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
    for at in order.iter().filter(is_cause) {
        tree.lock(*at, "", "");
    }
    // The others are in a cycle.
    for at in &order {
        tree.lock(*at, "", "");
    }
    tree.lines
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

impl<'l> Tree<'l> {
    /// `first` is drawn before the lock, `rest` before what is below it.
    fn lock(&mut self, at: usize, first: &str, rest: &str) {
        if !self.shown.insert(at) {
            return;
        }
        let lock = &self.locks.locks[at];
        if let Some(group) = group_key(lock).and_then(|key| self.groups.get(&key)) {
            let count = group.len();
            self.shown.extend(group.iter().copied());
            self.push(first, Content::Group(lock, count));
            return;
        }
        self.push(first, Content::Lock(lock, lock.holders.first()));
        for holder in lock.holders.iter().skip(1) {
            self.push(rest, Content::OtherHolder(holder));
        }
        for pid in pids(lock) {
            self.push_blockers(pid, rest);
        }
        let waiters = lock.waiters.iter().map(Content::Waiter);
        let below: Vec<_> = waiters.chain(lock.tries.iter().map(Content::Try)).collect();
        let last = below.len().saturating_sub(1);
        for (nth, content) in below.into_iter().enumerate() {
            let (branch, below) = match nth {
                nth if nth == last => ("└─ ", "   "),
                _ => ("├─ ", "│  "),
            };
            let held = match content {
                Content::Waiter(waiter) => self.held.get(&waiter.pid).cloned(),
                _ => None,
            };
            self.push(&format!("{rest}{branch}"), content);
            let below = format!("{rest}{below}");
            for at in held.unwrap_or_default() {
                self.lock(at, &below, &below);
            }
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
                self.push(before, Content::Blocker { pid, kind });
                self.push_blockers(pid, before);
            }
        }
    }

    fn push(&mut self, branch: &str, content: Content<'l>) {
        self.lines.push(Line {
            branch: branch.to_owned(),
            content,
        });
    }
}
