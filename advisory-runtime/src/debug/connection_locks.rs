//! The locks that each connection holds: those of running calls, and those that a nested call has
//! left to the transaction around it.
//!
//! A connection is identified by its address, since Diesel has no place for such a record. Diesel's
//! transactions have no names, so only the server knows whether the current one still has a lock
//! that was left to an earlier one: such a lock is doubtful.

use super::LockSet;
use crate::Key;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static CONNECTIONS: Mutex<BTreeMap<usize, Vec<Entry>>> = Mutex::new(BTreeMap::new());

/// Beyond this number, connections that hold only doubtful locks are forgotten.
const MOST: usize = 1_024;

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) locks: Arc<LockSet>,
    /// The permit that was taken, for a lock with permits.
    pub(super) permit: Option<Key>,
    pub(super) process: Option<u32>,
    state: CallState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    /// Its call runs; for a transaction-level lock the depth of its body.
    Runs(Option<NonZeroU32>),
    /// Left to the transaction of this depth.
    Left(NonZeroU32),
}

fn connections() -> MutexGuard<'static, BTreeMap<usize, Vec<Entry>>> {
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One call's locks among those of its connection, until dropped. Nothing in release builds.
#[derive(Debug, Default)]
pub(crate) struct CallLocks(Option<Box<Entered>>);

#[derive(Debug)]
struct Entered {
    address: usize,
    locks: Arc<LockSet>,
    /// The depth of their transaction, once the locks are held; `None` for session-level locks.
    depth: Option<NonZeroU32>,
}

impl CallLocks {
    pub(crate) fn new(address: usize, locks: LockSet) -> Self {
        Self(Some(Box::new(Entered {
            address,
            locks: Arc::new(locks),
            depth: None,
        })))
    }

    pub(crate) fn set(&self) -> Option<&Arc<LockSet>> {
        self.0.as_ref().map(|entered| &entered.locks)
    }

    pub(crate) fn held(
        &mut self,
        depth: Option<NonZeroU32>,
        permit: Option<Key>,
        process: Option<u32>,
    ) {
        if let Some(entered) = &mut self.0 {
            entered.depth = depth;
            let mut connections = connections();
            if connections.len() > MOST {
                connections.retain(|_, entries| entries.iter().any(Entry::runs));
            }
            let entries = connections.entry(entered.address).or_default();
            entries.push(Entry {
                locks: Arc::clone(&entered.locks),
                permit,
                process,
                state: CallState::Runs(depth),
            });
        }
    }

    /// Leaves the locks of a call that has ended to the transaction around it.
    pub(crate) fn hand_to_transaction(&mut self, outer: NonZeroU32) {
        if let Some(entered) = self.0.take() {
            for entry in connections().entry(entered.address).or_default() {
                // A lock that was left to the body's own savepoint may have ended with it, and
                // stays doubtful.
                let is_own =
                    matches!(entry.state, CallState::Left(depth) if Some(depth) == entered.depth);
                if is_own || entry.locks.id == entered.locks.id {
                    entry.state = CallState::Left(outer);
                }
            }
        }
    }
}

impl Drop for CallLocks {
    fn drop(&mut self) {
        if let Some(entered) = self.0.take() {
            retain(entered.address, |entry| match entry.state {
                CallState::Runs(_) => entry.locks.id != entered.locks.id,
                // The savepoint that it was left to is gone with this one's transaction.
                CallState::Left(depth) => entered.depth.is_none_or(|own| depth < own),
            });
        }
    }
}

impl Entry {
    fn runs(&self) -> bool {
        matches!(self.state, CallState::Runs(_))
    }

    /// Returns whether the lock is certainly held: its call runs, or a call runs inside the
    /// transaction that it was left to.
    fn is_certain(&self, all: &[Self]) -> bool {
        let CallState::Left(depth) = self.state else {
            return true;
        };
        all.iter().any(|other| match other.state {
            CallState::Runs(Some(body)) if self.locks.id > other.locks.id => depth == body,
            CallState::Runs(Some(body)) => depth < body,
            CallState::Runs(None) | CallState::Left(_) => false,
        })
    }
}

fn retain(address: usize, keeps: impl FnMut(&Entry) -> bool) {
    let mut connections = connections();
    if let Some(entries) = connections.get_mut(&address) {
        entries.retain(keeps);
        if entries.is_empty() {
            connections.remove(&address);
        }
    }
}

pub(crate) fn certain(address: usize) -> Vec<Arc<LockSet>> {
    select(address, true, |entry| Arc::clone(&entry.locks))
}

/// Like [`certain`], with the permit and the server process.
pub(super) fn held_here(address: usize) -> Vec<Entry> {
    select(address, true, Clone::clone)
}

/// The locks that the connection may still hold.
pub(crate) fn doubtful(address: usize) -> Vec<Arc<LockSet>> {
    select(address, false, |entry| Arc::clone(&entry.locks))
}

fn select<T>(address: usize, is_certain: bool, what: impl Fn(&Entry) -> T) -> Vec<T> {
    let connections = connections();
    let entries = connections.get(&address).map_or(&[][..], Vec::as_slice);
    let selected = entries
        .iter()
        .filter(|entry| entry.is_certain(entries) == is_certain);
    selected.map(what).collect()
}

pub(crate) fn forget(address: usize, gone: &[Arc<LockSet>]) {
    if !gone.is_empty() {
        retain(address, |entry| {
            gone.iter().all(|gone| gone.id != entry.locks.id)
        });
    }
}
