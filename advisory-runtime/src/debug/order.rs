//! In which order this process takes its locks, recorded in debug builds and in a test asserted to be one.
//!
//! As the kernel's lockdep does: an edge for each lock that was asked for while another was held, by key pattern. A cycle is a
//! deadlock that can happen, whether or not it has.

use super::lock_set::Lock;
use super::{LockSet, connection_locks, self_deadlock};
use crate::Mode;
use advisory_pattern::order::{Edge, End, cycles, message};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// The variable that names the file to which each process appends its edges.
const FILE: &str = "ADVISORY_LOCK_ORDER";

/// More are no order: keys without a pattern are locks of their own.
const MOST: usize = 4_096;

static RECORDED: LazyLock<Mutex<Recorded>> = LazyLock::new(|| Mutex::new(Recorded::new()));

struct Recorded {
    known: BTreeSet<(Lock, bool, Lock, bool)>,
    edges: Vec<Edge>,
    file: Option<File>,
}

fn recorded() -> MutexGuard<'static, Recorded> {
    RECORDED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorded {
    fn new() -> Self {
        let path = std::env::var_os(FILE).filter(|path| !path.is_empty());
        let open = |path: std::ffi::OsString| {
            let opened = OpenOptions::new().create(true).append(true).open(&path);
            opened
                .inspect_err(|error| {
                    eprintln!("{FILE}: `{}` can't be written: {error}", path.display());
                })
                .ok()
        };
        Self {
            known: BTreeSet::new(),
            edges: Vec::new(),
            file: path.and_then(open),
        }
    }

    fn add(&mut self, (held, by): (&Lock, &LockSet), (asked, of): (&Lock, &LockSet)) {
        let is_shared = |locks: &LockSet| locks.mode == Mode::Shared;
        if self.edges.len() == MOST
            || !self
                .known
                .insert((held.clone(), is_shared(by), asked.clone(), is_shared(of)))
        {
            return;
        }
        let end = |lock: &Lock, locks: &LockSet| End {
            lock: lock.text.clone().into_owned(),
            is_lease: lock.is_lease,
            is_shared: is_shared(locks),
            place: locks.place.to_string(),
        };
        let edge = Edge {
            held: end(held, by),
            asked: end(asked, of),
        };
        if let Some(file) = &mut self.file {
            // One write a line, so that the lines of several processes do not mix.
            let written = file.write_all(edge.encode().as_bytes());
            if let Err(error) = written {
                eprintln!("{FILE}: {error}");
                self.file = None;
            }
        }
        self.edges.push(edge);
    }
}

/// Records that these were asked for, by a call that waits, on the connection at this address, which holds `left` besides what is
/// certain; a lease is on none.
pub(crate) fn asked(address: Option<usize>, left: &[Arc<LockSet>], asked: &LockSet) {
    let mut here = address.map(connection_locks::certain).unwrap_or_default();
    here.extend_from_slice(left);
    let there = self_deadlock::held_by_bodies(address);
    if here.is_empty() && there.is_empty() {
        return;
    }
    let mut recorded = recorded();
    for (slot, lock) in &asked.locks {
        // A session that has it gets it again at once, unless it has it shared and wants it alone.
        let has = |locks: &Arc<LockSet>| {
            locks.has(*slot) && (locks.mode == Mode::Exclusive || asked.mode == Mode::Shared)
        };
        if here.iter().any(has) {
            continue;
        }
        for held in &here {
            for (_, other) in &held.locks {
                recorded.add((other, held), (lock, asked));
            }
        }
        for held in &there {
            // The same one would be waited for by who holds it.
            let others = held.locks.iter().filter(|(other, _)| other != slot);
            for (_, other) in others {
                recorded.add((other, held), (lock, asked));
            }
        }
    }
}

/// The order in which this process has taken its locks so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockOrder {
    /// Every lock that was asked for while another was held, by key pattern and mode, with the places where that happened first.
    pub edges: Vec<Edge>,
    /// Those that go round, each a deadlock that can happen: the last asks for what the first holds.
    pub cycles: Vec<Vec<Edge>>,
    /// Whether all that happened is here: of more than 4,096 edges the rest is not recorded.
    pub is_complete: bool,
}

/// Gives the order in which this process has taken its locks so far, in a debug build; in a release build nothing is recorded.
///
/// A lock counts as held while the body runs that stands under it, and what a nested call has left to a transaction to that
/// transaction's end; it is seen by what is asked for on the same connection, and in the body on any other. What a call that does not
/// wait takes ([`Wait::Never`](crate::Wait::Never)) is held afterwards, and makes no edge. Locks of one call make none among
/// themselves, nor does a lock that the session has already.
///
/// A lock is its key pattern, whatever its placeholders are called; a key that has none is its number.
/// A third lock that both ways of a cycle always hold is not taken into account.
///
/// Where the variable `ADVISORY_LOCK_ORDER` names a file, each process also appends its edges there, a line each, and
/// `cargo advisory graph` draws them. Name it by its whole path: tests run in the folders of their packages.
///
/// # Examples
///
/// ```
/// let order = advisory_runtime::inventory::lock_order();
/// // A parent's key is always taken before its child's, so this one pattern may be asked for under itself.
/// let known = |cycle: &[advisory_runtime::inventory::Edge]| {
///     cycle.iter().all(|edge| edge.held.lock == "folder:<id>" && edge.asked.lock == "folder:<id>")
/// };
/// assert!(order.cycles.iter().all(|cycle| known(cycle)));
/// ```
#[must_use]
pub fn lock_order() -> LockOrder {
    let edges = recorded().edges.clone();
    let way = |cycle: Vec<usize>| cycle.into_iter().filter_map(|at| edges.get(at).cloned());
    LockOrder {
        cycles: cycles(&edges)
            .into_iter()
            .map(|cycle| way(cycle).collect())
            .collect(),
        is_complete: edges.len() < MOST,
        edges,
    }
}

/// [`lock_order`], for a test: fails when two calls could wait for each other, though none has yet.
///
/// It knows of what ran before it in this process. Call it at the end of each test that takes locks under locks: whichever ends last
/// has seen them all.
///
/// # Panics
///
/// When locks were taken in more than one order, with each way round and its places; when not all that happened is recorded, as in a
/// release build, where nothing is.
///
/// # Examples
///
/// ```
/// # #[cfg(debug_assertions)]
/// advisory_runtime::inventory::assert_lock_order();
/// ```
#[track_caller]
pub fn assert_lock_order() {
    let is_recorded = cfg!(debug_assertions);
    assert!(
        is_recorded,
        "the order of locks is recorded in debug builds only: put `#[cfg(debug_assertions)]` on this test"
    );
    let order = lock_order();
    let texts = order
        .cycles
        .iter()
        .map(|cycle| message(&cycle.iter().collect::<Vec<_>>()));
    let texts: Vec<String> = texts.collect();
    assert!(texts.is_empty(), "{}", texts.join("\n\n"));
    assert!(
        order.is_complete,
        "locks were taken under each other in more than {MOST} ways, and not all are recorded: give keys patterns in place of numbers"
    );
}
