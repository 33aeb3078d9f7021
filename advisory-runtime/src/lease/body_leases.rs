//! In debug builds, the leases that a body runs under. A call in the body that waits for one of
//! them would wait for ever.

use super::{Lease, Request};
use crate::Wait;
use crate::debug::bodies::{InBody, enter_body};
use crate::debug::{LockSet, is_on, order};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static BODY_LEASES: RefCell<Vec<Lease>> = const { RefCell::new(Vec::new()) };
}

/// This thread is inside a body under a lease, until dropped.
#[must_use]
pub(super) struct Entered {
    _in_body: InBody,
}

pub(super) fn enter(lease: &Lease, lock_set: &Arc<LockSet>) -> Entered {
    let lease = lease.clone();
    // Fails only while the thread ends, and then `pop` does too.
    let _: Result<(), _> = BODY_LEASES.try_with(|leases| leases.borrow_mut().push(lease));
    Entered {
        _in_body: enter_body(None, lock_set),
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(BODY_LEASES.try_with(|leases| leases.borrow_mut().pop()));
    }
}

/// Records a request in the order of locks.
pub(super) fn record_request(request: &Request) -> Option<Arc<LockSet>> {
    if !is_on() {
        return None;
    }
    // Without the key's text, which can be personal data.
    let lock_set = LockSet::lease(request.key_hash, request.name(), request.origin.place());
    if !request.is_try() {
        order::asked(None, &[], &lock_set);
    }
    Some(Arc::new(lock_set))
}

/// The leases of the request's key, in any table, that this task holds, if the request would wait
/// for them.
pub(super) fn held_by_this_task(request: &Request) -> Vec<Lease> {
    if !is_on() || request.is_try() {
        return Vec::new();
    }
    let key_hash = request.key_hash;
    let held = |leases: &RefCell<Vec<Lease>>| {
        let leases = leases.borrow();
        let held = leases.iter().filter(|lease| lease.key_hash == key_hash);
        held.cloned().collect()
    };
    BODY_LEASES.try_with(held).unwrap_or_default()
}

impl Request {
    fn is_try(&self) -> bool {
        matches!(self.wait, Wait::Never) || matches!(self.wait, Wait::For(wait) if wait.is_zero())
    }
}
