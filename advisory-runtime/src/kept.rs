//! What a connection holds, in debug builds: the locks whose calls run, and those that a nested call has left to the transaction
//! around it.
//!
//! By the connection's address, since Diesel has no place for it. A transaction of Diesel's own has no name, so whether it is still
//! the one that a lock was left to is known only to the server: such a lock is doubtful.

use crate::taken::Taken;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static CONNECTIONS: Mutex<BTreeMap<usize, Vec<Entry>>> = Mutex::new(BTreeMap::new());

/// So many connections that hold nothing but doubtful locks are remembered.
const MOST: usize = 1_024;

#[derive(Debug)]
struct Entry {
    taken: Arc<Taken>,
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
pub(crate) struct Standing(Option<Box<Stands>>);

#[derive(Debug)]
struct Stands {
    address: usize,
    taken: Arc<Taken>,
    depth: Option<NonZeroU32>,
    is_held: bool,
}

impl Standing {
    pub(crate) fn asked(address: usize, taken: Taken) -> Self {
        Self(Some(Box::new(Stands {
            address,
            taken: Arc::new(taken),
            depth: None,
            is_held: false,
        })))
    }

    pub(crate) fn taken(&self) -> Option<&Arc<Taken>> {
        self.0.as_ref().map(|stands| &stands.taken)
    }

    /// They are held, by a body of this depth.
    pub(crate) fn held(&mut self, depth: Option<NonZeroU32>) {
        if let Some(stands) = &mut self.0 {
            (stands.depth, stands.is_held) = (depth, true);
            let mut connections = connections();
            if connections.len() > MOST {
                connections.retain(|_, entries| entries.iter().any(Entry::runs));
            }
            let entries = connections.entry(stands.address).or_default();
            entries.push(Entry {
                taken: Arc::clone(&stands.taken),
                state: State::Runs(depth),
            });
        }
    }

    /// The call is over, and the transaction around it keeps them.
    pub(crate) fn leave(&mut self, outer: NonZeroU32) {
        if let Some(stands) = self.0.take() {
            for entry in connections().entry(stands.address).or_default() {
                // What was left to a savepoint of the body's own may be gone with it, and stays doubtful.
                let is_own =
                    matches!(entry.state, State::Left(depth) if Some(depth) == stands.depth);
                if is_own || entry.taken.id == stands.taken.id {
                    entry.state = State::Left(outer);
                }
            }
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(stands) = self.0.take().filter(|stands| stands.is_held) {
            retain(stands.address, |entry| match entry.state {
                State::Runs(_) => entry.taken.id != stands.taken.id,
                // What it was left to is gone with this one's transaction.
                State::Left(depth) => stands.depth.is_none_or(|own| depth < own),
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
            State::Runs(Some(body)) if self.taken.id > other.taken.id => depth == body,
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
pub(crate) fn certain(address: usize) -> Vec<Arc<Taken>> {
    let connections = connections();
    let entries = connections.get(&address).map_or(&[][..], Vec::as_slice);
    let certain = entries.iter().filter(|entry| entry.is_certain(entries));
    certain.map(|entry| Arc::clone(&entry.taken)).collect()
}

/// What it may hold besides.
pub(crate) fn doubtful(address: usize) -> Vec<Arc<Taken>> {
    let connections = connections();
    let entries = connections.get(&address).map_or(&[][..], Vec::as_slice);
    let doubtful = entries.iter().filter(|entry| !entry.is_certain(entries));
    doubtful.map(|entry| Arc::clone(&entry.taken)).collect()
}

/// It does not hold these any more.
pub(crate) fn forget(address: usize, gone: &[Arc<Taken>]) {
    if !gone.is_empty() {
        retain(address, |entry| {
            gone.iter().all(|gone| gone.id != entry.taken.id)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Standing, certain, doubtful, forget};
    use crate::Request;
    use crate::taken::Taken;
    use std::num::NonZeroU32;

    fn depth(depth: u32) -> Option<NonZeroU32> {
        NonZeroU32::new(depth)
    }

    fn taken(address: usize, id: u64, body: u32) -> Standing {
        let request = Request::new(i64::try_from(id).unwrap_or_default());
        let mut standing = Standing::asked(address, Taken::new(id, &request));
        standing.held(depth(body));
        standing
    }

    fn ids(taken: &[std::sync::Arc<Taken>]) -> Vec<u64> {
        taken.iter().map(|taken| taken.id).collect()
    }

    #[test]
    fn a_lock_is_held_until_its_call_is_over() {
        let (outer, other) = (taken(1, 1, 1), taken(2, 2, 1));
        let session = taken(1, 3, 0);
        assert_eq!(ids(&certain(1)), [1, 3]);
        drop(session);
        drop(other);
        assert_eq!((ids(&certain(1)), ids(&certain(2))), (vec![1], vec![]));
        drop(outer);
        assert_eq!(ids(&certain(1)), []);
    }

    #[test]
    fn what_a_nested_call_leaves_ends_with_the_call_around_it() {
        let outer = taken(3, 1, 1);
        let mut nested = taken(3, 2, 2);
        let mut inner = taken(3, 3, 3);
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
        let outer = taken(5, 1, 1);
        let mut nested = taken(5, 2, 2);
        let mut in_savepoint = taken(5, 3, 4);
        in_savepoint.leave(NonZeroU32::MIN.saturating_add(2));
        nested.leave(NonZeroU32::MIN);
        assert_eq!((ids(&certain(5)), ids(&doubtful(5))), (vec![1, 2], vec![3]));
        drop(outer);
        assert_eq!((ids(&certain(5)), ids(&doubtful(5))), (vec![], vec![]));
    }

    #[test]
    fn what_is_left_to_a_transaction_of_diesels_own_is_doubtful_unless_a_call_runs_in_it() {
        let mut first = taken(4, 1, 2);
        first.leave(NonZeroU32::MIN);
        drop(first);
        assert_eq!((ids(&certain(4)), ids(&doubtful(4))), (vec![], vec![1]));
        let second = taken(4, 2, 2);
        assert_eq!((ids(&certain(4)), ids(&doubtful(4))), (vec![1, 2], vec![]));
        drop(second);
        forget(4, &doubtful(4));
        assert_eq!((ids(&certain(4)), ids(&doubtful(4))), (vec![], vec![]));
    }
}
