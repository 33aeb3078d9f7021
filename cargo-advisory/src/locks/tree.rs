//! The tree of locks: a lock, its waiters, and the locks that these hold in turn.
//!
//! The roots are the causes: locks whose holders wait for no other lock. The locks that a waiter holds are below it, and their waiters
//! below them. Each lock is in the tree once, also if a deadlock makes a cycle.

use std::collections::BTreeSet;

use advisory_runtime::monitor::{Holder, HolderId, Lock, Locks, Try, Waiter};

/// One line of the tree.
pub(crate) struct Line<'l> {
    /// The branches that are drawn before it.
    pub(crate) branch: String,
    pub(crate) content: Content<'l>,
}

pub(crate) enum Content<'l> {
    /// A lock and its first holder.
    Lock(&'l Lock, Option<&'l Holder>),
    /// Another holder of the same lock.
    OtherHolder(&'l Holder),
    /// A waiter for the lock above.
    Waiter(&'l Waiter),
    /// A backend that has tried to get the lock above.
    Try(&'l Try),
    /// A backend that blocks the one above, by a lock of that kind on a row or a table.
    Blocker { pid: i32, kind: &'l str },
}

struct Tree<'l> {
    locks: &'l Locks,
    wanted: &'l [usize],
    shown: BTreeSet<usize>,
    blockers: BTreeSet<i32>,
    lines: Vec<Line<'l>>,
}

/// Orders the wanted locks: the one whose waiter has waited longest comes first.
pub(crate) fn lines<'l>(locks: &'l Locks, wanted: &'l [usize]) -> Vec<Line<'l>> {
    let mut tree = Tree {
        locks,
        wanted,
        shown: BTreeSet::new(),
        blockers: BTreeSet::new(),
        lines: Vec::new(),
    };
    let mut order = wanted.to_vec();
    order.sort_by_key(|at| {
        let longest = locks.locks[*at].waiters.first();
        std::cmp::Reverse(longest.map(|waiter| waiter.waited))
    });
    let awaits = |pid: i32| {
        let awaited = wanted.iter().flat_map(|at| &locks.locks[*at].waiters);
        awaited.into_iter().any(|waiter| waiter.pid == pid)
    };
    let is_cause = |at: &&usize| !pids(&locks.locks[**at]).any(awaits);
    for at in order.iter().filter(is_cause) {
        tree.lock(*at, "", "");
    }
    // The rest waits in a cycle.
    for at in &order {
        tree.lock(*at, "", "");
    }
    tree.lines
}

fn pids(lock: &Lock) -> impl Iterator<Item = i32> + '_ {
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
        self.push(first, Content::Lock(lock, lock.holders.first()));
        for holder in lock.holders.iter().skip(1) {
            self.push(rest, Content::OtherHolder(holder));
        }
        for pid in pids(lock) {
            self.push_blockers(pid, rest);
        }
        let below = lock.waiters.len() + lock.tries.len();
        for (nth, waiter) in lock.waiters.iter().enumerate() {
            let is_last = nth + 1 == below;
            let (branch, below) = if is_last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            self.push(&format!("{rest}{branch}"), Content::Waiter(waiter));
            let below = format!("{rest}{below}");
            for at in self.wanted {
                if pids(&self.locks.locks[*at]).any(|pid| pid == waiter.pid) {
                    self.lock(*at, &below, &below);
                }
            }
        }
        for (nth, one) in lock.tries.iter().enumerate() {
            let is_last = lock.waiters.len() + nth + 1 == below;
            let branch = if is_last { "└─ " } else { "├─ " };
            self.push(&format!("{rest}{branch}"), Content::Try(one));
        }
    }

    /// Adds the backends that block this one by other locks than advisory ones, and those that block them.
    fn push_blockers(&mut self, pid: i32, before: &str) {
        let Some(backend) = self.locks.backend(pid) else {
            return;
        };
        let Some(kind) = backend.waits_for.as_deref() else {
            return;
        };
        if kind == "advisory" {
            return;
        }
        for blocker in &backend.blocked_by {
            if self.blockers.insert(*blocker) {
                self.push(
                    before,
                    Content::Blocker {
                        pid: *blocker,
                        kind,
                    },
                );
                self.push_blockers(*blocker, before);
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
