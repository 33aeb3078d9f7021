//! Detection of a call that waits for a lock that its own task holds on another connection.
//!
//! A thread knows the locks of the bodies that it is polling.

use super::{LockSet, connection_locks};
use crate::driver::Driver;
use crate::{Key, Request, Wait, sql};
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

pub(super) async fn waits_forever<D: Driver>(
    conn: &mut D,
    address: usize,
    request: &Request,
) -> bool {
    // Another permit can come free.
    if is_bounded(request) || !request.permits.is_empty() {
        return false;
    }
    let held = held_by_this_task(address, request);
    // The same number may be held in another database.
    !held.is_empty()
        && has_no_limit(conn, request).await
        && !held_in_database(conn, &held).await.is_empty()
}

/// The keys of a request that this task holds on connections other than the one at this address, in
/// a mode that excludes the request, with the server process of each. With a pooler the process is
/// not known.
fn held_by_this_task(address: usize, request: &Request) -> Vec<(Key, u32)> {
    let mut held = Vec::new();
    for other in addresses_of_bodies() {
        if other == address {
            continue;
        }
        for here in connection_locks::held_here(other) {
            let Some(process) = here.process else {
                continue;
            };
            if here.locks.mode.excludes(request.mode) {
                let keys = here.locks.keys_and_names(here.permit).map(|(key, _)| key);
                let asked = keys.filter(|key| request.keys.contains(key));
                held.extend(asked.map(|key| (key, process)));
            }
        }
    }
    held.sort_unstable();
    held.dedup();
    held
}

/// Returns whether the request itself limits its wait.
pub(super) fn is_bounded(request: &Request) -> bool {
    matches!(request.budget(), Wait::Never | Wait::For(_))
}

/// Returns whether the session does not limit the wait of a request that is not bounded.
pub(super) async fn has_no_limit<D: Driver>(conn: &mut D, request: &Request) -> bool {
    if request.budget() == Wait::Forever {
        return true;
    }
    let answer = conn.query_text(sql::probe::LOCK_TIMEOUT).await;
    matches!(answer, Ok(Some(milliseconds)) if milliseconds == "0")
}

pub(super) async fn held_in_database<D: Driver>(
    conn: &mut D,
    locks: &[(Key, u32)],
) -> Vec<(Key, u32)> {
    let mut confirmed = Vec::new();
    for some in locks.chunks(MOST) {
        let answer = conn.query_text(&sql::probe::held_by(some)).await;
        // One letter each.
        let answer = answer.ok().flatten().unwrap_or_default();
        let letters = some.iter().zip(answer.chars());
        let held = letters.filter(|(_, letter)| *letter == '1');
        confirmed.extend(held.map(|(lock, _)| *lock));
    }
    confirmed
}

/// The number of locks in one query: a function has at most 100 arguments.
const MOST: usize = 64;
