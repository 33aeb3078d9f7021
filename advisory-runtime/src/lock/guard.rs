//! The guard of a lock that borrows its connection: drop and finish.
//!
//! Without it, the backend of a dropped call would wait on, get the lock, and stay idle in
//! transaction. The next `transaction()` on the connection would be a savepoint that is never
//! committed.

use super::body::Run;
use super::call::{Call, Way};
use super::lock_info::LockInfo;
use crate::driver::Driver;
use crate::error::lock_name;
use crate::holding::{Handle, Proof};
use crate::request::Request;
use crate::{DeclaredLocks, Error, Mode};
#[cfg(feature = "postgres")]
use diesel::pg::PgConnection;
use diesel::result::Error as DieselError;
#[cfg(feature = "diesel-async")]
use diesel_async::AsyncPgConnection;

/// Gets the connection out of the value that the guard borrows. It is a function pointer, so that a
/// thousand lock sites share one instance of the code.
pub(crate) type ConnAccessor<O, D> = fn(&mut O) -> &mut D;

/// The guard of one lock or several. It borrows the connection, or the value that contains it.
///
/// Run statements on [`conn`](Self::conn), and end with [`finish`](Self::finish).
///
/// If the guard is dropped instead, an async connection is closed: the server cancels a statement
/// that still runs, rolls the transaction back and releases every lock. A pool replaces the
/// connection; on a connection of your own, every further locked call returns
/// [`Error::BrokenConnection`]. A blocking connection is rolled back, releases the lock at once,
/// and stays usable.
///
/// [`xact::begin`](crate::xact::begin) and [`session::acquire`](crate::session::acquire) return the
/// guard of a connection of diesel-async, `LockGuard<'_, C>`. The guard of a blocking connection is
/// `blocking::LockGuard<'_, C>`.
#[must_use = "dropping the guard of a lock rolls its transaction back: end with `guard.finish(result)`"]
pub struct LockGuard<
    'o,
    O: ?Sized,
    #[cfg(feature = "diesel-async")] D: Driver = AsyncPgConnection,
    #[cfg(not(feature = "diesel-async"))] D: Driver,
> {
    pub(super) owner: &'o mut O,
    pub(super) accessor: ConnAccessor<O, D>,
    pub(super) call: Call,
}

impl<'o, O: ?Sized, D: Driver> LockGuard<'o, O, D> {
    pub(super) fn new(
        owner: &'o mut O,
        accessor: ConnAccessor<O, D>,
        way: Way,
        request: Request,
    ) -> Self {
        let call = Call::new(accessor(owner), way, request);
        Self {
            owner,
            accessor,
            call,
        }
    }

    /// Returns the connection that holds the lock, or the value that contains it.
    pub fn conn(&mut self) -> &mut O {
        self.owner
    }

    /// Returns the key of the lock, and the duration of its acquisition.
    #[must_use]
    pub fn info(&self) -> LockInfo<D> {
        self.call.info()
    }

    /// The state that the body runs in, and [`conn`](Self::conn), in one call, which compiles
    /// faster than two.
    #[doc(hidden)]
    pub fn run(&mut self) -> (Run, &mut O) {
        let (conn, call) = self.parts();
        let run = Run::new(conn, call);
        (run, self.owner)
    }

    pub(super) fn parts(&mut self) -> (&mut D, &mut Call) {
        ((self.accessor)(self.owner), &mut self.call)
    }

    /// Ends the call. After a body's error it always returns `Ok`, so that the body's error is
    /// never lost.
    pub(crate) async fn end(mut self, is_ok: bool) -> Result<(), Error> {
        let (conn, call) = self.parts();
        super::finish(conn, call, is_ok).await
    }

    #[cfg(feature = "diesel-async")]
    pub(crate) async fn exceed(mut self) -> Error {
        let (conn, call) = self.parts();
        super::exceed(conn, call).await
    }

    /// Borrows the connection, together with a [`Holding`](crate::Holding) of each of these locks.
    ///
    /// For code without the attribute; under the attribute, `handle = lock` and `lock.holding()`
    /// are checked at compile time. `locks` are the locks of the request: a declared lock, or a
    /// tuple, an array, a slice or a `Vec` of several. While a witness lives, the guard cannot be
    /// finished.
    ///
    /// # Locking
    ///
    /// Sends nothing. It computes the keys again and compares them with those of this guard.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if one of the keys is not among those of this guard, if the lock has
    /// [permits](crate::Request::permits), or if it is held in shared mode: use
    /// [`holding_shared`](Self::holding_shared).
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

    /// Like [`holding`](Self::holding), for functions that need the locks only in shared mode: a
    /// `Holding<'_, Shared<SlotLock>>`.
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
        let mut held = Ok(());
        locks.each_lock(&mut |lock| {
            let key = lock.key();
            if held.is_ok() && !(has_mode && self.call.request.keys.contains(&key)) {
                let lock = lock_name(lock.pattern(), &[key]);
                held = Err(Error::NotHeld { lock });
            }
        });
        held
    }

    /// For the expansion, which made the request from these locks.
    #[doc(hidden)]
    pub fn handle<'h, L>(&self, locks: &'h L) -> Handle<LockInfo<D>, &'h L> {
        Handle::new(self.info(), locks)
    }
}

#[cfg(feature = "diesel-async")]
impl<O: ?Sized> LockGuard<'_, O, AsyncPgConnection> {
    /// Ends the call: commits if the result is `Ok`, rolls back if it is `Err`, and releases the
    /// lock.
    ///
    /// # Locking
    ///
    /// One round trip. From [`xact::begin`](crate::xact::begin): `SAVEPOINT`, which fails unless
    /// the transaction is alive, and `COMMIT`; or `ROLLBACK`. The server releases the lock after
    /// the commit is visible. Inside an outer transaction: `RELEASE SAVEPOINT`, which keeps the
    /// lock, or `ROLLBACK TO SAVEPOINT`, which releases it.
    ///
    /// From [`session::acquire`](crate::session::acquire), for `Ok` and `Err`: a `SELECT` of
    /// `pg_advisory_unlock(key)` that fails unless the lock was held. A transaction that the body
    /// left open through Diesel is rolled back first.
    ///
    /// # Errors
    ///
    /// The body's own error, unchanged, even if the rollback fails.
    ///
    /// For an `Ok` that could not be committed: [`Error::RolledBack`] (25P02),
    /// [`Error::TransactionEnded`] (25P01), [`Error::HoldExceeded`], [`Error::CommitUnknown`], or
    /// [`Error::Database`], such as a deferred constraint.
    ///
    /// For an `Ok` under a session-level lock:
    ///
    /// - [`Error::LockLost`] if a lock was no longer held, as after a lost connection or a
    ///   `pg_advisory_unlock_all` in the body;
    /// - [`Error::HoldExceeded`];
    /// - [`Error::RolledBack`] or [`Error::ForeignTransaction`] if the body left a transaction
    ///   open. One that SQL began and that has not failed is found only in debug builds;
    /// - [`Error::Database`] if the server refuses the release, such as to a role without the right
    ///   (42501). The connection is then closed.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: after a drop it is not known whether the commit happened. The connection is
    /// closed, which releases the locks.
    pub async fn finish<T, E: From<Error>>(self, result: Result<T, E>) -> Result<T, E> {
        match self.end(result.is_ok()).await {
            Ok(()) => result,
            Err(error) => Err(error.into()),
        }
    }

    /// Like [`finish`](Self::finish), for an error type that has `From<diesel::result::Error>` and
    /// not `From<Error>`.
    ///
    /// The error is one of Diesel's, as from a function under the attribute. [`Error::find`] finds
    /// this crate's error in it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use advisory_runtime::xact;
    /// use diesel_async::AsyncPgConnection;
    ///
    /// enum StoreError {
    ///     Database(diesel::result::Error),
    ///     Full,
    /// }
    ///
    /// impl From<diesel::result::Error> for StoreError {
    ///     fn from(error: diesel::result::Error) -> Self {
    ///         Self::Database(error)
    ///     }
    /// }
    ///
    /// async fn store(conn: &mut AsyncPgConnection, account: i64) -> Result<(), StoreError> {
    ///     let mut guard = xact::begin(conn, account).await.map_err(diesel::result::Error::from)?;
    ///     let result = work(guard.conn()).await;
    ///     guard.finish_diesel(result).await
    /// }
    /// # async fn work(_: &mut AsyncPgConnection) -> Result<(), StoreError> { Err(StoreError::Full) }
    /// ```
    pub async fn finish_diesel<T, E: From<DieselError>>(
        self,
        result: Result<T, E>,
    ) -> Result<T, E> {
        match self.end(result.is_ok()).await {
            Ok(()) => result,
            Err(error) => Err(DieselError::from(error).into()),
        }
    }
}

#[cfg(feature = "postgres")]
impl<O: ?Sized> LockGuard<'_, O, PgConnection> {
    /// Ends the call, in one round trip: commits if the result is `Ok`, rolls back if it is `Err`,
    /// and releases the lock. Its errors are those of an async guard's `finish`.
    pub fn finish<T, E: From<Error>>(self, result: Result<T, E>) -> Result<T, E> {
        match crate::driver::block_on(self.end(result.is_ok())) {
            Ok(()) => result,
            Err(error) => Err(error.into()),
        }
    }

    /// Like [`finish`](Self::finish), for an error type that has `From<diesel::result::Error>` and
    /// not `From<Error>`.
    pub fn finish_diesel<T, E: From<DieselError>>(self, result: Result<T, E>) -> Result<T, E> {
        match crate::driver::block_on(self.end(result.is_ok())) {
            Ok(()) => result,
            Err(error) => Err(DieselError::from(error).into()),
        }
    }
}

impl<O: ?Sized, D: Driver> Drop for LockGuard<'_, O, D> {
    fn drop(&mut self) {
        let (conn, call) = self.parts();
        call.abandon_unless_ended(conn);
    }
}

impl<O: ?Sized, D: Driver> std::fmt::Debug for LockGuard<'_, O, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockGuard")
            .field("lock", &self.call.lock_name())
            .field("way", &self.call.way)
            .finish_non_exhaustive()
    }
}
