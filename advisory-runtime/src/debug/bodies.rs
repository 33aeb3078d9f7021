//! The bodies that a thread is polling, by which a call knows the locks of its own task.

use super::{LockSet, connection_locks};
use crate::Request;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static BODIES: RefCell<Vec<Body>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone)]
struct Body {
    /// The address of its connection; a lease has none.
    address: Option<usize>,
    locks: Arc<LockSet>,
}

/// Until it is dropped, this thread is inside a body.
#[must_use]
#[derive(Debug)]
pub(crate) struct InBody(());

pub(crate) fn enter_body(address: Option<usize>, locks: &Arc<LockSet>) -> InBody {
    let locks = Arc::clone(locks);
    let body = Body { address, locks };
    // A thread that is ending has no list. Nothing is recorded then, and the drop removes nothing.
    let _ended = BODIES.try_with(|bodies| bodies.borrow_mut().push(body));
    InBody(())
}

impl Drop for InBody {
    fn drop(&mut self) {
        drop(BODIES.try_with(|bodies| bodies.borrow_mut().pop()));
    }
}

/// Returns whether a body of this task holds the turn of one of these keys.
pub(crate) fn has_turn(request: &Request) -> bool {
    let held = held_by_bodies(None);
    let mut turns = held.iter().filter(|locks| locks.has_turn);
    turns.any(|locks| locks.keys().any(|key| request.keys.contains(&key)))
}

/// The locks that this task holds inside locked bodies, on connections other than the one at this
/// address: those of each body, and those that nested calls left to its transaction.
pub(super) fn held_by_bodies(address: Option<usize>) -> Vec<Arc<LockSet>> {
    let mut found: Vec<Arc<LockSet>> = Vec::new();
    let bodies = BODIES.try_with(|bodies| bodies.borrow().clone());
    for body in bodies.unwrap_or_default() {
        let all = match body.address {
            Some(_) if body.address == address => Vec::new(),
            Some(other) => connection_locks::certain(other),
            None => vec![body.locks],
        };
        for locks in all {
            if !found.iter().any(|known| Arc::ptr_eq(known, &locks)) {
                found.push(locks);
            }
        }
    }
    found
}

pub(super) fn addresses_of_bodies() -> Vec<usize> {
    let addresses = |bodies: &RefCell<Vec<Body>>| {
        let bodies = bodies.borrow();
        bodies.iter().filter_map(|body| body.address).collect()
    };
    BODIES.try_with(addresses).unwrap_or_default()
}

/// Returns whether this thread is polling a body. Always `false` in a release build.
pub(crate) fn is_inside_body() -> bool {
    BODIES
        .try_with(|bodies| !bodies.borrow().is_empty())
        .unwrap_or(false)
}
