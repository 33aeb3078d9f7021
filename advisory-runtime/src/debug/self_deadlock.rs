//! Detection of a call that waits for a lock that its own task holds on another connection.
//!
//! A thread knows the locks of the bodies that it is polling.

use super::{LockSet, connection_locks, is_on};
use crate::driver::Driver;
use crate::{Error, Key, Request, Wait, sql};
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
pub(crate) struct Mark(());

pub(crate) fn mark(address: Option<usize>, locks: &Arc<LockSet>) -> Mark {
    let locks = Arc::clone(locks);
    let body = Body { address, locks };
    // While the thread ends there is no list, here and in the drop, and nothing waits any more.
    let _ended = BODIES.try_with(|bodies| bodies.borrow_mut().push(body));
    Mark(())
}

impl Drop for Mark {
    fn drop(&mut self) {
        drop(BODIES.try_with(|bodies| bodies.borrow_mut().pop()));
    }
}

/// The keys of a request that this task holds on another connection than the one at this address, in a mode that excludes it.
pub(crate) fn held_by_this_task(address: Option<usize>, request: &Request) -> Vec<Key> {
    if !is_on() {
        return Vec::new();
    }
    let excluding = |locks: &Arc<LockSet>| locks.mode.excludes(request.mode);
    let held = held_by_bodies(address).into_iter().filter(excluding);
    let mut keys: Vec<Key> = held
        .flat_map(|locks| locks.keys().collect::<Vec<_>>())
        .filter(|key| request.keys.contains(key))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The locks that this task holds inside locked bodies, on other connections than the one at this address: those of each body, and those
/// that were left to its transaction.
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

/// The connections of the bodies that this thread is polling.
pub(super) fn addresses_of_bodies() -> Vec<usize> {
    let addresses = |bodies: &RefCell<Vec<Body>>| {
        let bodies = bodies.borrow();
        bodies.iter().filter_map(|body| body.address).collect()
    };
    BODIES.try_with(addresses).unwrap_or_default()
}

/// Whether the call would wait forever. A bounded wait ends as in a release build.
pub(super) async fn waits_forever<D: Driver>(
    conn: &mut D,
    address: usize,
    request: &Request,
) -> Result<bool, Error> {
    let heeds_lock_timeout = match request.budget() {
        Wait::Never | Wait::For(_) => return Ok(false),
        // Another permit can come free.
        _ if !request.permits.is_empty() => return Ok(false),
        Wait::Session => true,
        Wait::Forever => false,
    };
    let keys = held_by_this_task(Some(address), request);
    if keys.is_empty() {
        return Ok(false);
    }
    // The same number may be held in another database.
    let question = sql::probe::held_elsewhere(&keys, heeds_lock_timeout);
    let answer = conn.query_text(&question).await.map_err(Error::Database)?;
    Ok(answer.is_some_and(|count| count != "0"))
}
