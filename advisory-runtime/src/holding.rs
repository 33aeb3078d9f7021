//! The witness of a lock: a value that exists only while the lock is held.

mod declared_locks;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
mod handle;

pub use declared_locks::DeclaredLocks;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub(crate) use declared_locks::Proof;
#[cfg(any(feature = "diesel-async", feature = "postgres"))]
pub use handle::{Handle, OfDeclaredLock};

use crate::key::LockKey;
use std::fmt;
use std::marker::PhantomData;

/// A witness that a declared lock is held: a function that takes one cannot be called without the
/// lock.
///
/// In the body of a function with `#[advisory_lock(key = SlotLock { … }, handle = lock)]`,
/// `lock.holding()` returns one. Without the attribute, use
/// [`LockGuard::holding`](crate::LockGuard::holding), and in a unit test
/// [`testing::holding`](crate::testing::holding). It cannot outlive the body, and each type of lock
/// has its own type of witness. Under `mode = "shared"` it is a `Holding<'_, Shared<SlotLock>>`.
/// See [`guide::holding`](crate::guide::holding).
///
/// It is a reference to the declared lock. It sends nothing, and does not prove on which connection
/// the lock is held.
///
/// # Examples
///
/// ```
/// use advisory_runtime::{Holding, LockKey};
///
/// #[derive(LockKey)]
/// #[lock_key("slot:<room>")]
/// struct SlotLock {
///     room: i64,
/// }
///
/// fn room_to_write(slot: Holding<'_, SlotLock>) -> i64 {
///     slot.key().room
/// }
/// ```
pub struct Holding<'h, L: DeclaredLock> {
    key: &'h L::Lock,
}

impl<'h, L: DeclaredLock> Holding<'h, L> {
    pub(crate) const fn new(key: &'h L::Lock) -> Self {
        Self { key }
    }

    /// Returns the declared lock, with its values.
    #[must_use]
    pub const fn key(self) -> &'h L::Lock {
        self.key
    }

    /// Returns the witness for a function that needs the lock only in shared mode.
    #[must_use]
    pub const fn shared(self) -> Holding<'h, Shared<L::Lock>> {
        Holding::new(self.key)
    }
}

impl<L: DeclaredLock> Clone for Holding<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: DeclaredLock> Copy for Holding<'_, L> {}

/// Shows the key pattern, never the values.
impl<L: DeclaredLock> fmt::Debug for Holding<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holding").field(&self.key.pattern()).finish()
    }
}

/// A declared lock in shared mode, in the type of a [`Holding`]. The type has no values.
pub struct Shared<L>(PhantomData<L>, std::convert::Infallible);

/// A lock that is declared as a type, so that it can have a [`Holding`].
///
/// `#[derive(LockKey)]` implements it. A type that implements [`LockKey`] by hand implements this
/// with `type Lock = Self`. Numbers do not: a witness of "some number" would not say which one is
/// held.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a declared lock, so there is no `Holding` of it",
    label = "expected a type with `#[derive(LockKey)]`",
    note = "declare the lock, `#[derive(LockKey)] #[lock_key(\"slot:<room>\")] struct SlotLock {{ room: i64 }}`, and write \
            `#[advisory_lock(key = SlotLock {{ room }}, handle = lock)]`"
)]
pub trait DeclaredLock {
    /// The declared type: itself, also for a reference to it and for [`Shared`].
    type Lock: DeclaredLock<Lock = Self::Lock> + LockKey;

    /// Returns the declared lock, without references around it.
    fn lock(&self) -> &Self::Lock;
}

impl<K: DeclaredLock + ?Sized> DeclaredLock for &K {
    type Lock = K::Lock;

    fn lock(&self) -> &K::Lock {
        K::lock(self)
    }
}

impl<K: DeclaredLock> DeclaredLock for Shared<K> {
    type Lock = K::Lock;

    fn lock(&self) -> &K::Lock {
        match self.1 {}
    }
}
