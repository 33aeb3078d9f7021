//! Under which leases does a body run, in debug builds? A call inside it that waits for one of them waits for itself.

use super::{Lease, Request};
use crate::Wait;
use crate::debug::LockSet;
use crate::debug::order;
use crate::debug::self_deadlock::{Mark, mark};
use crate::error::LEASE;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static RUNNING: RefCell<Vec<Lease>> = const { RefCell::new(Vec::new()) };
}

/// This thread is inside a body under a lease, until dropped.
#[must_use]
pub(super) struct Entered {
    is_under: bool,
    _mark: Mark,
}

pub(super) fn enter(lease: &Lease, taken: &Arc<LockSet>) -> Entered {
    let lease = lease.clone();
    Entered {
        // Gone while the thread ends, when nothing waits any more.
        is_under: RUNNING
            .try_with(|running| running.borrow_mut().push(lease))
            .is_ok(),
        _mark: mark(None, taken),
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.is_under {
            drop(RUNNING.try_with(|running| running.borrow_mut().pop()));
        }
    }
}

/// Records a request in the order of locks.
pub(super) fn asked(request: &Request) -> Option<Arc<LockSet>> {
    if !cfg!(debug_assertions) {
        return None;
    }
    // Its text can be personal data.
    let name = request.name();
    let text = name.strip_prefix(LEASE).unwrap_or(&name).to_owned().into();
    let taken = LockSet::lease(request.key_hash(), text, request.origin.place());
    if !request.is_try() {
        order::asked(None, &[], &taken);
    }
    Some(Arc::new(taken))
}

/// The leases of this key, in whatever table, that this task would wait for and holds.
pub(super) fn held_by_this_task(request: &Request) -> Vec<Lease> {
    if !cfg!(debug_assertions) || request.is_try() {
        return Vec::new();
    }
    let key_hash = request.key_hash();
    let held = |running: &RefCell<Vec<Lease>>| {
        let running = running.borrow();
        let held = running.iter().filter(|lease| lease.key_hash == key_hash);
        held.cloned().collect()
    };
    RUNNING.try_with(held).unwrap_or_default()
}

impl Request {
    fn is_try(&self) -> bool {
        matches!(self.wait, Wait::Never) || matches!(self.wait, Wait::For(wait) if wait.is_zero())
    }
}
