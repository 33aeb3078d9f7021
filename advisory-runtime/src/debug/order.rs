//! The order in which this process acquires its locks. Debug builds record it, so that a test can
//! assert that there is one order.
//!
//! As in the kernel's lockdep, there is an edge from each lock to those that were requested while
//! it was held, by key pattern. A cycle is a possible deadlock, even if it has not happened.

use super::lock_set::Lock;
use super::{LockSet, bodies, connection_locks};
use crate::Mode;
use advisory_pattern::order::{Edge, End, cycles, message};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

const FILE: &str = "ADVISORY_LOCK_ORDER";

/// The maximum number of recorded edges. Only keys without a pattern, each a lock of its own, make
/// more.
const MOST: usize = 4_096;

static RECORDED: LazyLock<Mutex<Recorded>> = LazyLock::new(|| Mutex::new(Recorded::new()));

struct Recorded {
    known: BTreeMap<(Lock, bool, Lock, bool), usize>,
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
                    eprintln!("{FILE}: cannot write `{}`: {error}", path.display());
                })
                .ok()
        };
        Self {
            known: BTreeMap::new(),
            edges: Vec::new(),
            file: path.and_then(open),
        }
    }

    fn add(
        &mut self,
        (held, by): (&Lock, &LockSet),
        (asked, of): (&Lock, &LockSet),
        gates: &[String],
    ) {
        let is_shared = |locks: &LockSet| locks.mode == Mode::Shared;
        let key = (held.clone(), is_shared(by), asked.clone(), is_shared(of));
        if let Some(at) = self.known.get(&key) {
            if self.edges[*at].narrow_gates(gates) {
                let line = self.edges[*at].encode();
                self.write(&line);
            }
            return;
        }
        if self.edges.len() == MOST {
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
            gates: gates.to_vec(),
        };
        self.write(&edge.encode());
        self.known.insert(key, self.edges.len());
        self.edges.push(edge);
    }

    fn write(&mut self, line: &str) {
        if let Some(file) = &mut self.file {
            // One write for each line keeps the lines of several processes apart.
            if let Err(error) = file.write_all(line.as_bytes()) {
                eprintln!("{FILE}: {error}");
                self.file = None;
            }
        }
    }
}

/// Records that a call that waits has requested these locks on the connection at this address,
/// which also holds `left`. A lease has no connection.
pub(crate) fn asked(address: Option<usize>, left: &[Arc<LockSet>], asked: &LockSet) {
    let mut here = address.map(connection_locks::certain).unwrap_or_default();
    here.extend_from_slice(left);
    let there = bodies::held_by_bodies(address);
    if here.is_empty() && there.is_empty() {
        // Creates the file: an empty one says that no lock was requested under another.
        LazyLock::force(&RECORDED);
        return;
    }
    // Only those of this connection: on another, an equal number may be another database's lock.
    let gates = here.iter().flat_map(|locks| locks.gates.clone());
    let gates: Vec<String> = gates.collect();
    let mut recorded = recorded();
    for (slot, lock) in &asked.locks {
        // A session gets its own lock again at once, unless it asks for a shared lock exclusively.
        let has = |locks: &Arc<LockSet>| {
            locks.has(*slot) && (locks.mode == Mode::Exclusive || asked.mode == Mode::Shared)
        };
        if here.iter().any(has) {
            continue;
        }
        for held in &here {
            for (_, other) in &held.locks {
                recorded.add((other, held), (lock, asked), &gates);
            }
        }
        for held in &there {
            // A lock under itself is a deadlock of one task, which `wait_graph` reports.
            let others = held.locks.iter().filter(|(other, _)| other != slot);
            for (_, other) in others {
                recorded.add((other, held), (lock, asked), &[]);
            }
        }
    }
}

/// The order in which this process has taken its locks so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockOrder {
    /// Each pair of a held lock and one that was requested meanwhile, by key pattern and mode, with
    /// the places of its first occurrence.
    pub edges: Vec<Edge>,
    /// The cycles, each a possible deadlock: the last edge requests the lock that the first one
    /// holds.
    pub cycles: Vec<Vec<Edge>>,
    /// True if every edge is here: at most 4,096 are recorded.
    pub is_complete: bool,
}

/// Returns the order in which this process has acquired its locks so far. Only debug builds record
/// it.
///
/// A lock is held while the body under it runs; the lock of a nested call is held until the end of
/// the transaction around it. There is an edge from a held lock to each lock that is requested
/// meanwhile: on its connection and, inside its body, on any other. A call that does not wait
/// ([`Wait::Never`](crate::Wait::Never)) adds no edge to its lock, nor does a lock that the session
/// already holds. The locks of one call have no edges between them.
///
/// A lock is identified by its key pattern, without the names of its placeholders, or by its number
/// if it has no pattern. A third lock that both sides of a cycle hold rules the cycle out if it is
/// certainly one lock: exclusive, held on the requesting connection, with a key without
/// placeholders.
///
/// If the variable `ADVISORY_LOCK_ORDER` names a file, each process also appends its edges there,
/// one a line, and `cargo advisory graph` draws them. Write an absolute path: tests run in the
/// folders of their packages.
///
/// # Examples
///
/// ```
/// let order = advisory_runtime::inventory::lock_order();
/// // A parent's key is always taken before its child's, so this one pattern may be asked for
/// // under itself.
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

/// Asserts that the calls so far cannot wait for each other, even if none has: [`lock_order`] for a
/// test.
///
/// It sees all earlier calls of this process. Call it at the end of each test that acquires locks
/// under locks, so that the test that ends last sees all calls.
///
/// # Panics
///
/// If locks were acquired in more than one order; the message has each cycle with its places. If
/// the record is incomplete, or in a release build, which has none.
#[track_caller]
pub fn assert_lock_order() {
    let is_recorded = cfg!(debug_assertions);
    assert!(
        is_recorded,
        "the order of locks is recorded in debug builds only: put `#[cfg(debug_assertions)]` on this test"
    );
    let order = lock_order();
    let text = |cycle: &Vec<Edge>| message(&cycle.iter().collect::<Vec<_>>());
    let texts: Vec<String> = order.cycles.iter().map(text).collect();
    assert!(texts.is_empty(), "{}", texts.join("\n\n"));
    assert!(
        order.is_complete,
        "more than {MOST} orders of locks, of which the rest is not recorded: use key patterns instead of numbers"
    );
}
