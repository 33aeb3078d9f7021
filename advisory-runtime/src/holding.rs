//! The witness of a lock that is held: a value that exists only while it is.

use crate::LockKey;
use std::fmt;
use std::marker::PhantomData;

/// Shows that a declared lock is held: a function that takes one cannot be called without the lock.
///
/// In the body of a function with `#[advisory_lock(key = SlotLock { … }, handle = lock)]`, `lock.holding()` gives one. Without the
/// attribute [`Held::holding`](crate::Held::holding) does, and in a unit test [`testing::holding`](crate::testing::holding). It
/// cannot be kept for longer than the body, and the witness of another type of lock is another type. Under `mode = "shared"` it is
/// a `Holding<'_, Shared<SlotLock>>`. See [`guide::holding`](crate::guide::holding).
///
/// It is a reference to the declared lock and nothing else.
///
/// # Locking
///
/// None: it sends nothing and holds nothing. It says that the call that lends it holds the lock. It does not say on which
/// connection.
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

    /// The declared lock, with the values that are locked.
    #[must_use]
    pub const fn key(self) -> &'h L::Lock {
        self.key
    }

    /// The same lock for a function that needs it in shared mode only: the exclusive lock keeps out whoever the shared one does.
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

/// Its key pattern, and never its values.
impl<L: DeclaredLock> fmt::Debug for Holding<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Holding").field(&self.key.pattern()).finish()
    }
}

/// A declared lock in shared mode, in the type of a [`Holding`]. There are no values of it.
pub struct Shared<L>(PhantomData<L>, std::convert::Infallible);

/// A lock that is declared as a type, so that there can be a [`Holding`] of it.
///
/// `#[derive(LockKey)]` implements it. A type with a [`LockKey`] by hand implements it with `type Lock = Self`. Numbers do not: a
/// witness of "some number" would let any of them write.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a declared lock, so there is no `Holding` of it",
    label = "expected a type with `#[derive(LockKey)]`",
    note = "declare the lock, `#[derive(LockKey)] #[lock_key(\"slot:<room>\")] struct SlotLock {{ room: i64 }}`, and write \
            `#[advisory_lock(key = SlotLock {{ room }}, handle = lock)]`"
)]
pub trait DeclaredLock {
    /// The declared type: itself, also for a reference to it and for [`Shared`].
    type Lock: DeclaredLock<Lock = Self::Lock> + LockKey;

    /// The declared lock behind the references.
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

/// One declared lock or several, and the witnesses of them: a [`Holding`], a tuple or an array of them, or an iterator.
///
/// There is nothing to implement: it is there for each [`DeclaredLock`], for tuples of two to eight, for arrays, slices and `Vec`s.
#[diagnostic::on_unimplemented(
    message = "there is no `Holding` of `{Self}`",
    label = "expected a declared lock, or a tuple (of two to eight), an array, a slice or a `Vec` of them",
    note = "a type becomes a declared lock by `#[derive(LockKey)]`; of more than eight write `keys = <an iterator>`"
)]
pub trait DeclaredLocks {
    /// The witnesses of exclusive locks.
    type Holding<'h>
    where
        Self: 'h;
    /// The witnesses of shared locks.
    type SharedHolding<'h>
    where
        Self: 'h;

    #[doc(hidden)]
    fn each_lock(&self, visit: &mut dyn FnMut(&dyn LockKey));

    #[doc(hidden)]
    fn witness(&self, proof: Proof) -> Self::Holding<'_>;

    #[doc(hidden)]
    fn shared_witness(&self, proof: Proof) -> Self::SharedHolding<'_>;
}

/// What only the code that has the lock can give, so that nobody else can call [`DeclaredLocks::witness`].
#[derive(Clone, Copy)]
pub struct Proof(());

impl Proof {
    pub(crate) const fn new() -> Self {
        Self(())
    }
}

impl<K: DeclaredLock> DeclaredLocks for K {
    type Holding<'h>
        = Holding<'h, K::Lock>
    where
        Self: 'h;
    type SharedHolding<'h>
        = Holding<'h, Shared<K::Lock>>
    where
        Self: 'h;

    fn each_lock(&self, visit: &mut dyn FnMut(&dyn LockKey)) {
        visit(self.lock());
    }

    fn witness(&self, _: Proof) -> Self::Holding<'_> {
        Holding::new(self.lock())
    }

    fn shared_witness(&self, _: Proof) -> Self::SharedHolding<'_> {
        Holding::new(self.lock())
    }
}

/// The iterator over the witnesses of a slice.
type Each<'h, K, W> = std::iter::Map<std::slice::Iter<'h, K>, fn(&'h K) -> W>;

impl<K: DeclaredLock> DeclaredLocks for [K] {
    type Holding<'h>
        = Each<'h, K, Holding<'h, K::Lock>>
    where
        Self: 'h;
    type SharedHolding<'h>
        = Each<'h, K, Holding<'h, Shared<K::Lock>>>
    where
        Self: 'h;

    fn each_lock(&self, visit: &mut dyn FnMut(&dyn LockKey)) {
        self.iter().for_each(|key| visit(key.lock()));
    }

    fn witness(&self, _: Proof) -> Self::Holding<'_> {
        self.iter().map(|key| Holding::new(key.lock()))
    }

    fn shared_witness(&self, _: Proof) -> Self::SharedHolding<'_> {
        self.iter().map(|key| Holding::new(key.lock()))
    }
}

impl<K: DeclaredLock> DeclaredLocks for Vec<K> {
    type Holding<'h>
        = <[K] as DeclaredLocks>::Holding<'h>
    where
        Self: 'h;
    type SharedHolding<'h>
        = <[K] as DeclaredLocks>::SharedHolding<'h>
    where
        Self: 'h;

    fn each_lock(&self, visit: &mut dyn FnMut(&dyn LockKey)) {
        self.as_slice().each_lock(visit);
    }

    fn witness(&self, proof: Proof) -> Self::Holding<'_> {
        self.as_slice().witness(proof)
    }

    fn shared_witness(&self, proof: Proof) -> Self::SharedHolding<'_> {
        self.as_slice().shared_witness(proof)
    }
}

impl<K: DeclaredLock, const N: usize> DeclaredLocks for [K; N] {
    type Holding<'h>
        = [Holding<'h, K::Lock>; N]
    where
        Self: 'h;
    type SharedHolding<'h>
        = [Holding<'h, Shared<K::Lock>>; N]
    where
        Self: 'h;

    fn each_lock(&self, visit: &mut dyn FnMut(&dyn LockKey)) {
        self.as_slice().each_lock(visit);
    }

    fn witness(&self, _: Proof) -> Self::Holding<'_> {
        self.each_ref().map(|key| Holding::new(key.lock()))
    }

    fn shared_witness(&self, _: Proof) -> Self::SharedHolding<'_> {
        self.each_ref().map(|key| Holding::new(key.lock()))
    }
}

macro_rules! tuples {
    ($(($($key:ident $place:tt),*))*) => { $(
        impl<$($key: DeclaredLock),*> DeclaredLocks for ($($key,)*) {
            type Holding<'h>
                = ($(Holding<'h, $key::Lock>,)*)
            where
                Self: 'h;
            type SharedHolding<'h>
                = ($(Holding<'h, Shared<$key::Lock>>,)*)
            where
                Self: 'h;

            fn each_lock(&self, visit: &mut dyn FnMut(&dyn LockKey)) {
                $(visit(self.$place.lock());)*
            }

            fn witness(&self, _: Proof) -> Self::Holding<'_> {
                ($(Holding::new(self.$place.lock()),)*)
            }

            fn shared_witness(&self, _: Proof) -> Self::SharedHolding<'_> {
                ($(Holding::new(self.$place.lock()),)*)
            }
        }
    )* };
}
tuples! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

/// What a body with `handle = …` gets under declared locks: what it gets under others, and the witnesses. `W` is a reference to the
/// locks, or [`SharedLocks`].
///
/// The lifetime keeps it in the body. It is not `Clone`, so that `lease.clone()` is the lease.
#[derive(Debug)]
#[doc(hidden)]
pub struct Handle<A, W> {
    acquired: A,
    locks: W,
}

/// References locks that are held in shared mode.
#[derive(Debug)]
#[doc(hidden)]
pub struct SharedLocks<'h, L: ?Sized>(&'h L);

#[doc(hidden)]
impl<'h, A, L> Handle<A, &'h L> {
    pub(crate) const fn new(acquired: A, locks: &'h L) -> Self {
        Self { acquired, locks }
    }

    /// The same of locks in shared mode.
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
