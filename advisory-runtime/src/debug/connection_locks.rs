//! What each connection holds: the locks whose calls run, and those that a nested call has left to the transaction around it.
//!
//! Connections are told apart by their address, since Diesel has no place for such a record. A transaction of Diesel's own has no
//! name, so only the server knows whether it is still the one that a lock was left to: such a lock is doubtful.

use super::LockSet;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static CONNECTIONS: Mutex<BTreeMap<usize, Vec<Entry>>> = Mutex::new(BTreeMap::new());

/// So many connections that hold nothing but doubtful locks are remembered.
const MOST: usize = 1_024;

#[derive(Debug)]
struct Entry {
    locks: Arc<LockSet>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
    depth: Option<NonZeroU32>,
    is_held: bool,
}

impl CallLocks {
    pub(crate) fn new(address: usize, locks: LockSet) -> Self {
        Self(Some(Box::new(Entered {
            address,
            locks: Arc::new(locks),
            depth: None,
            is_held: false,
        })))
    }

    pub(crate) fn set(&self) -> Option<&Arc<LockSet>> {
        self.0.as_ref().map(|entered| &entered.locks)
    }

    /// They are held, by a body of this depth.
    pub(crate) fn held(&mut self, depth: Option<NonZeroU32>) {
        if let Some(entered) = &mut self.0 {
            (entered.depth, entered.is_held) = (depth, true);
            let mut connections = connections();
            if connections.len() > MOST {
                connections.retain(|_, entries| entries.iter().any(Entry::runs));
            }
            let entries = connections.entry(entered.address).or_default();
            entries.push(Entry {
                locks: Arc::clone(&entered.locks),
                state: State::Runs(depth),
            });
        }
    }

    /// The call is over, and the transaction around it keeps them.
    pub(crate) fn leave(&mut self, outer: NonZeroU32) {
        if let Some(entered) = self.0.take() {
            for entry in connections().entry(entered.address).or_default() {
                // What was left to a savepoint of the body's own may be gone with it, and stays doubtful.
                let is_own =
                    matches!(entry.state, State::Left(depth) if Some(depth) == entered.depth);
                if is_own || entry.locks.id == entered.locks.id {
                    entry.state = State::Left(outer);
                }
            }
        }
    }
}

impl Drop for CallLocks {
    fn drop(&mut self) {
        if let Some(entered) = self.0.take().filter(|entered| entered.is_held) {
            retain(entered.address, |entry| match entry.state {
                State::Runs(_) => entry.locks.id != entered.locks.id,
                // What it was left to is gone with this one's transaction.
                State::Left(depth) => entered.depth.is_none_or(|own| depth < own),
            });
        }
    }
}

impl Entry {
    fn runs(&self) -> bool {
        matches!(self.state, State::Runs(_))
    }

    /// Whether it is held for sure: it runs, or a call runs inside the transaction that it was left to.
    fn is_certain(&self, all: &[Self]) -> bool {
        let State::Left(depth) = self.state else {
            return true;
        };
        all.iter().any(|other| match other.state {
            State::Runs(Some(body)) if self.locks.id > other.locks.id => depth == body,
            State::Runs(Some(body)) => depth < body,
            State::Runs(None) | State::Left(_) => false,
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

/// What the connection holds for sure.
pub(crate) fn certain(address: usize) -> Vec<Arc<LockSet>> {
    let connections = connections();
    let entries = connections.get(&address).map_or(&[][..], Vec::as_slice);
    let certain = entries.iter().filter(|entry| entry.is_certain(entries));
    certain.map(|entry| Arc::clone(&entry.locks)).collect()
}

/// What it may hold besides.
pub(crate) fn doubtful(address: usize) -> Vec<Arc<LockSet>> {
    let connections = connections();
    let entries = connections.get(&address).map_or(&[][..], Vec::as_slice);
    let doubtful = entries.iter().filter(|entry| !entry.is_certain(entries));
    doubtful.map(|entry| Arc::clone(&entry.locks)).collect()
}

/// It does not hold these any more.
pub(crate) fn forget(address: usize, gone: &[Arc<LockSet>]) {
    if !gone.is_empty() {
        retain(address, |entry| {
            gone.iter().all(|gone| gone.id != entry.locks.id)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::LockSet;
    use super::{CallLocks, certain, doubtful, forget};
    use crate::Request;
    use std::num::NonZeroU32;

    fn depth(depth: u32) -> Option<NonZeroU32> {
        NonZeroU32::new(depth)
    }

    fn locks(address: usize, id: u64, body: u32) -> CallLocks {
        let request = Request::new(i64::try_from(id).unwrap_or_default());
        let mut locks = CallLocks::new(address, LockSet::new(id, &request));
        locks.held(depth(body));
        locks
    }

    fn ids(locks: &[std::sync::Arc<LockSet>]) -> Vec<u64> {
        locks.iter().map(|locks| locks.id).collect()
    }

    #[test]
    fn a_lock_is_held_until_its_call_is_over() {
        let (outer, other) = (locks(1, 1, 1), locks(2, 2, 1));
        let session = locks(1, 3, 0);
        assert_eq!(ids(&certain(1)), [1, 3]);
        drop(session);
        drop(other);
        assert_eq!((ids(&certain(1)), ids(&certain(2))), (vec![1], vec![]));
        drop(outer);
        assert_eq!(ids(&certain(1)), []);
    }

    #[test]
    fn what_a_nested_call_leaves_ends_with_the_call_around_it() {
        let outer = locks(3, 1, 1);
        let mut nested = locks(3, 2, 2);
        let mut inner = locks(3, 3, 3);
        inner.leave(NonZeroU32::MIN.saturating_add(1));
        assert_eq!(ids(&certain(3)), [1, 2, 3]);
        nested.leave(NonZeroU32::MIN);
        assert_eq!(
            (ids(&certain(3)), ids(&doubtful(3))),
            (vec![1, 2, 3], vec![])
        );
        drop(outer);
        assert_eq!((ids(&certain(3)), ids(&doubtful(3))), (vec![], vec![]));
    }

    #[test]
    fn what_was_left_to_a_savepoint_of_the_bodys_own_stays_doubtful() {
        let outer = locks(5, 1, 1);
        let mut nested = locks(5, 2, 2);
        let mut in_savepoint = locks(5, 3, 4);
        in_savepoint.leave(NonZeroU32::MIN.saturating_add(2));
        nested.leave(NonZeroU32::MIN);
        assert_eq!((ids(&certain(5)), ids(&doubtful(5))), (vec![1, 2], vec![3]));
        drop(outer);
        assert_eq!((ids(&certain(5)), ids(&doubtful(5))), (vec![], vec![]));
    }

    #[test]
    fn what_is_left_to_a_transaction_of_diesels_own_is_doubtful_unless_a_call_runs_in_it() {
        let mut first = locks(4, 1, 2);
        first.leave(NonZeroU32::MIN);
        drop(first);
        assert_eq!((ids(&certain(4)), ids(&doubtful(4))), (vec![], vec![1]));
        let second = locks(4, 2, 2);
        assert_eq!((ids(&certain(4)), ids(&doubtful(4))), (vec![1, 2], vec![]));
        drop(second);
        forget(4, &doubtful(4));
        assert_eq!((ids(&certain(4)), ids(&doubtful(4))), (vec![], vec![]));
    }
}
