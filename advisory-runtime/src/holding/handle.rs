//! The handle of a declared lock, for the body.

use super::{DeclaredLocks, Proof};
use std::fmt;

/// The handle that a body with `handle = …` gets under declared locks: the handle of any other
/// lock, with witnesses. `W` is a reference to the locks, or [`SharedLocks`].
///
/// The lifetime keeps it in the body. It is not `Clone`, so that `lease.clone()` clones the lease.
#[doc(hidden)]
pub struct Handle<A, W> {
    acquired: A,
    locks: W,
}

/// References locks that are held in shared mode.
#[doc(hidden)]
pub struct SharedLocks<'h, L: ?Sized>(&'h L);

#[doc(hidden)]
impl<'h, A, L> Handle<A, &'h L> {
    pub(crate) const fn new(acquired: A, locks: &'h L) -> Self {
        Self { acquired, locks }
    }

    #[must_use]
    pub fn in_shared_mode(self) -> Handle<A, SharedLocks<'h, L>> {
        Handle {
            acquired: self.acquired,
            locks: SharedLocks(self.locks),
        }
    }

    pub fn holding(&self) -> L::Holding<'h>
    where
        L: DeclaredLocks,
    {
        self.locks.witness(Proof::new())
    }
}

#[doc(hidden)]
impl<'h, A, L> Handle<A, SharedLocks<'h, L>> {
    pub fn holding(&self) -> L::SharedHolding<'h>
    where
        L: DeclaredLocks,
    {
        self.locks.0.shared_witness(Proof::new())
    }
}

/// Shows the handle without the values.
impl<A: fmt::Debug, W> fmt::Debug for Handle<A, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.acquired.fmt(f)
    }
}

impl<A, W> std::ops::Deref for Handle<A, W> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.acquired
    }
}

/// Implemented by nothing: for the message of `lock.holding()` under a key pattern or a number.
#[diagnostic::on_unimplemented(
    message = "this lock is not declared as a type, so there is no `Holding` of it",
    label = "`holding` needs a declared lock",
    note = "declare the lock, `#[derive(LockKey)] #[lock_key(\"slot:<room>\")] struct SlotLock {{ room: i64 }}`, and write \
            `#[advisory_lock(key = SlotLock {{ room }}, handle = lock)]`"
)]
#[doc(hidden)]
pub trait OfDeclaredLock {}
