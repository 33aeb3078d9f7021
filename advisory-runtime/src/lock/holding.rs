//! The witnesses of a guard: [`Holding`](crate::Holding).

use super::acquired::Acquired;
use super::guard::LockGuard;
use crate::driver::Driver;
use crate::error::LockName;
use crate::error::never;
use crate::holding::{Handle, OfDeclaredLock, Proof};
use crate::{DeclaredLocks, Error, Mode};

impl<O: ?Sized, D: Driver> LockGuard<'_, O, D> {
    /// Borrows the connection, and with it a [`Holding`](crate::Holding) of each of these locks, for functions that take one.
    ///
    /// For code without the attribute; with the attribute, `handle = lock` and `lock.holding()` do the same, checked at compile time.
    /// `locks` is what the request was made of: a declared lock, or a tuple, an array, a slice or a `Vec` of several. While a witness
    /// lives, the guard cannot be finished.
    ///
    /// # Locking
    ///
    /// Sends nothing. It computes the keys again and compares them with those that this guard holds.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if one of the keys is not among those of this guard, if the lock has [permits](crate::Request::permits), or
    /// if it is held in shared mode: use [`holding_shared`](Self::holding_shared).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # #[cfg(feature = "diesel-async")]
    /// # mod example {
    /// use advisory_runtime::{Error, Holding, LockKey, xact};
    /// use diesel_async::AsyncPgConnection;
    ///
    /// #[derive(LockKey)]
    /// #[lock_key("slot:<room>")]
    /// struct SlotLock {
    ///     room: i64,
    /// }
    ///
    /// async fn book(conn: &mut AsyncPgConnection, room: i64) -> Result<(), Error> {
    ///     let slot = SlotLock { room };
    ///     let mut guard = xact::begin(conn, &slot).await?;
    ///     let (conn, slot) = guard.holding(&slot)?;
    ///     let result = insert(conn, slot).await;
    ///     guard.finish(result).await
    /// }
    /// # async fn insert(_: &mut AsyncPgConnection, _: Holding<'_, SlotLock>) -> Result<(), Error> { Ok(()) }
    /// # }
    /// ```
    pub fn holding<'h, L>(&'h mut self, locks: &'h L) -> Result<(&'h mut O, L::Holding<'h>), Error>
    where
        L: DeclaredLocks + ?Sized,
    {
        self.check_held(locks, Mode::Exclusive)?;
        Ok((self.conn(), locks.witness(Proof::new())))
    }

    /// As [`holding`](Self::holding), for functions that need the locks only in shared mode: a `Holding<'_, Shared<SlotLock>>`.
    ///
    /// # Locking
    ///
    /// As [`holding`](Self::holding).
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if one of the keys is not among those of this guard.
    pub fn holding_shared<'h, L>(
        &'h mut self,
        locks: &'h L,
    ) -> Result<(&'h mut O, L::SharedHolding<'h>), Error>
    where
        L: DeclaredLocks + ?Sized,
    {
        self.check_held(locks, Mode::Shared)?;
        Ok((self.conn(), locks.shared_witness(Proof::new())))
    }

    fn check_held<L: DeclaredLocks + ?Sized>(&self, locks: &L, mode: Mode) -> Result<(), Error> {
        // Other sessions may hold other permits.
        let has_mode = (self.call.request.mode == Mode::Exclusive || mode == Mode::Shared)
            && self.call.request.permits.is_empty();
        let mut missing = None;
        locks.each_lock(&mut |lock| {
            let key = lock.key();
            if missing.is_none() && !(has_mode && self.call.request.keys.contains(&key)) {
                missing = Some(LockName::new(lock.pattern(), &[key]).text());
            }
        });
        missing.map_or(Ok(()), |lock| Err(Error::NotHeld { lock }))
    }

    /// For the expansion, which made the request of the same locks.
    #[doc(hidden)]
    pub fn handle<'h, L>(&self, locks: &'h L) -> Handle<Acquired<D>, &'h L> {
        Handle::new(self.acquired(), locks)
    }
}

impl<D> Acquired<D> {
    /// For its message: a body under a declared lock gets a [`Handle`].
    #[doc(hidden)]
    #[must_use]
    pub fn holding<H>(&self) -> H
    where
        for<'h> &'h Self: OfDeclaredLock,
    {
        never()
    }
}
