//! One declared lock or several, and their witnesses.

use super::{DeclaredLock, Holding, Shared};
use crate::key::LockKey;

/// One declared lock or several, and the witnesses of them: a [`Holding`], a tuple or an array of
/// them, or an iterator.
///
/// Implemented for each [`DeclaredLock`], for tuples of two to eight, for arrays, slices and
/// `Vec`s.
#[diagnostic::on_unimplemented(
    message = "there is no `Holding` of `{Self}`",
    label = "expected a declared lock, or a tuple (of two to eight), an array, a slice or a `Vec` of them",
    note = "a type becomes a declared lock by `#[derive(LockKey)]`; for more than eight, write `keys = <an iterator>`"
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

/// Only code that has the lock can make one, so nothing else can call [`DeclaredLocks::witness`].
#[derive(Clone, Copy)]
pub struct Proof(());

impl Proof {
    #[cfg(any(feature = "diesel-async", feature = "postgres"))]
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

macro_rules! slices {
    ($($slice:ty),*) => { $(
        impl<K: DeclaredLock> DeclaredLocks for $slice {
            type Holding<'h>
                = Each<'h, K, Holding<'h, K::Lock>>
            where
                Self: 'h;
            type SharedHolding<'h>
                = Each<'h, K, Holding<'h, Shared<K::Lock>>>
            where
                Self: 'h;

            fn each_lock(&self, visit: &mut dyn FnMut(&dyn LockKey)) {
                for key in self {
                    visit(key.lock());
                }
            }

            fn witness(&self, _: Proof) -> Self::Holding<'_> {
                self.iter().map(|key| Holding::new(key.lock()))
            }

            fn shared_witness(&self, _: Proof) -> Self::SharedHolding<'_> {
                self.iter().map(|key| Holding::new(key.lock()))
            }
        }
    )* };
}
slices!([K], Vec<K>);

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
