//! What stands below what: a lock, who waits for it, and what these hold in turn.
//!
//! The roots are the causes: locks whose holders wait for no other one. A waiter that holds locks itself has them below it, and who
//! waits for those below them. Each lock stands in the tree once, also where a deadlock makes a circle.

use std::collections::BTreeSet;

use advisory_runtime::monitor::{Holder, HolderId, Lock, Locks, Waiter};

/// One line of the tree.
pub(crate) struct Line<'l> {
    /// What is drawn before it.
    pub(crate) branch: String,
    pub(crate) what: What<'l>,
}

pub(crate) enum What<'l> {
    /// A lock and its first holder.
    Lock(&'l Lock, Option<&'l Holder>),
    /// Another holder of the same.
    Also(&'l Holder),
    /// One who waits for the lock above.
    Waits(&'l Waiter),
    /// One who holds up the backend above, by a lock of that kind on a row or a table.
    HoldsUp { pid: i32, kind: &'l str },
}

struct Tree<'l> {
    locks: &'l Locks,
    wanted: &'l [usize],
    shown: BTreeSet<usize>,
    causes: BTreeSet<i32>,
    lines: Vec<Line<'l>>,
}

/// Puts the wanted locks in order: who keeps others waiting for longest first.
pub(crate) fn lines<'l>(locks: &'l Locks, wanted: &'l [usize]) -> Vec<Line<'l>> {
    let mut tree = Tree {
        locks,
        wanted,
        shown: BTreeSet::new(),
        causes: BTreeSet::new(),
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
    // What is left waits in a circle.
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
    /// `first` stands before the lock, `rest` before what is below it.
    fn lock(&mut self, at: usize, first: &str, rest: &str) {
        if !self.shown.insert(at) {
            return;
        }
        let lock = &self.locks.locks[at];
        self.push(first, What::Lock(lock, lock.holders.first()));
        for holder in lock.holders.iter().skip(1) {
            self.push(rest, What::Also(holder));
        }
        for pid in pids(lock) {
            self.causes_of(pid, rest);
        }
        for (nth, waiter) in lock.waiters.iter().enumerate() {
            let is_last = nth + 1 == lock.waiters.len();
            let (branch, below) = if is_last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            self.push(&format!("{rest}{branch}"), What::Waits(waiter));
            let below = format!("{rest}{below}");
            for at in self.wanted {
                if pids(&self.locks.locks[*at]).any(|pid| pid == waiter.pid) {
                    self.lock(*at, &below, &below);
                }
            }
        }
    }

    /// Who is in a backend's way by other locks than advisory ones, and in theirs.
    fn causes_of(&mut self, pid: i32, before: &str) {
        let Some(backend) = self.locks.backend(pid) else {
            return;
        };
        let Some(kind) = backend.waits_for.as_deref() else {
            return;
        };
        if kind == "advisory" {
            return;
        }
        for cause in &backend.blocked_by {
            if self.causes.insert(*cause) {
                self.push(before, What::HoldsUp { pid: *cause, kind });
                self.causes_of(*cause, before);
            }
        }
    }

    fn push(&mut self, branch: &str, what: What<'l>) {
        self.lines.push(Line {
            branch: branch.to_owned(),
            what,
        });
    }
}
