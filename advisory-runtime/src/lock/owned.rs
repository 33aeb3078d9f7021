//! Session-level locks that own their connection, so that they can be stored, or moved to a task.

mod error;

use super::acquired::Acquired;
use super::check::check;
use super::guard::{Held, HeldLocks, Place};
use super::tries::Tries;
#[cfg(feature = "migrations")]
use crate::debug;
use crate::driver::Driver;
use crate::request::POLL;
use crate::{Error, PoolError, Request};
pub use error::OwnedLockError;
use std::fmt;

/// One session-level lock or several, and the connection that holds them.
///
/// It borrows nothing: it can be a field, and be moved to another task or thread. [`conn`](Self::conn) borrows the
/// connection for queries, `check` asks whether the lock is still held, and `release` gives the connection back.
///
/// Dropping it closes an async connection, which releases the lock; a pool opens another connection. A
/// blocking connection is rolled back, the lock is released, and the connection goes back to its pool.
///
/// [`session::acquire_owned`](crate::session::acquire_owned) and
/// [`blocking::session::acquire_owned`](crate::blocking::session::acquire_owned) return one. The guide's page
/// [`owned_locks`](crate::guide::owned_locks) has examples.
#[must_use = "dropping a lock releases it"]
pub struct OwnedLock<C, D: Driver> {
    parts: Option<Parts<C>>,
    place: Place<C, D>,
    acquired: Acquired,
}

/// The connection is in a box because the checks of debug builds identify it by its address.
type Parts<C> = (Box<C>, HeldLocks);

/// Takes the locks on a connection, which the guard then owns.
pub(crate) async fn acquire_owned<C, D: Driver>(
    connection: C,
    place: Place<C, D>,
    request: Request,
) -> Result<OwnedLock<C, D>, OwnedLockError<C>> {
    let mut connection = Box::new(connection);
    let acquired = super::acquire(&mut *connection, place, request).await;
    match acquired.map(Held::detach) {
        Ok(locks) => Ok(OwnedLock::new(connection, place, locks)),
        Err(error) => Err(OwnedLockError { error, connection }),
    }
}

/// Takes the locks on a connection that it gets for each try, and that the guard then owns. Between two tries it has none.
pub(crate) async fn acquire_from<C, D, F>(
    connect: impl Fn() -> F,
    place: Place<C, D>,
    mut request: Request,
) -> Result<OwnedLock<C, D>, Error>
where
    D: Driver,
    F: Future<Output = Result<C, PoolError>>,
{
    request.poll = request.poll.or(Some(POLL));
    let mut tries = Tries::session(request);
    loop {
        let connection = connect().await?;
        match try_owned(&mut tries, connection, place).await {
            Ok(lock) => return Ok(lock),
            Err((Some(error), _)) => return Err(error),
            Err((None, connection)) => drop(connection),
        }
        tries.pause::<D>().await;
    }
}

/// One try of a call that polls. If it does not take the locks, it gives the connection back, with an error if that was the last try.
pub(crate) async fn try_owned<C, D: Driver>(
    tries: &mut Tries,
    connection: C,
    place: Place<C, D>,
) -> Result<OwnedLock<C, D>, (Option<Error>, C)> {
    let mut connection = Box::new(connection);
    let acquired = tries.attempt(&mut *connection, place).await;
    match acquired.map(|held| held.map(Held::detach)) {
        Ok(Some(locks)) => Ok(OwnedLock::new(connection, place, locks)),
        Ok(None) => Err((None, *connection)),
        Err(error) => Err((Some(error), *connection)),
    }
}

impl<C, D: Driver> OwnedLock<C, D> {
    fn new(connection: Box<C>, place: Place<C, D>, locks: HeldLocks) -> Self {
        Self {
            acquired: locks.acquired.clone(),
            parts: Some((connection, locks)),
            place,
        }
    }

    /// The connection that holds the lock.
    ///
    /// Transactions on it work as on any connection. One that is still open when the lock is released is rolled back.
    pub fn conn(&mut self) -> &mut C {
        connection(&mut self.parts)
    }

    /// Which lock it is, and how long the acquisition took.
    #[must_use]
    pub const fn acquired(&self) -> &Acquired {
        &self.acquired
    }

    /// Moves the connection into `work`, which returns it. If `work` does not return it, the lock has ended with the connection.
    #[cfg(feature = "migrations")]
    pub(crate) async fn lend<T, W>(mut self, work: impl FnOnce(C) -> W) -> Option<(Self, T)>
    where
        W: Future<Output = Option<(C, T)>>,
    {
        let (connection, mut locks) = self.parts.take()?;
        // They identify the connection by its address, which changes.
        locks.checks = debug::Call::default();
        let (connection, answer) = work(*connection).await?;
        self.parts = Some((Box::new(connection), locks));
        Some((self, answer))
    }

    async fn ask(&mut self) -> Result<(), Error> {
        let driver = (self.place)(connection(&mut self.parts));
        check(driver, &self.acquired).await
    }

    pub(crate) async fn finish(mut self) -> Result<C, OwnedLockError<C>> {
        let Some((mut connection, locks)) = self.parts.take() else {
            unreachable!("{TAKEN}")
        };
        let held = Held::attach(&mut *connection, self.place, locks);
        let released = super::finish(held, true).await;
        match released {
            Ok(()) => Ok(*connection),
            Err(error) => Err(OwnedLockError { error, connection }),
        }
    }
}

fn connection<C>(parts: &mut Option<Parts<C>>) -> &mut C {
    match parts {
        Some((connection, _)) => connection,
        None => unreachable!("{TAKEN}"),
    }
}

const TAKEN: &str = "only the release and the drop take the connection, and both end the guard";

#[cfg(feature = "diesel-async")]
impl<C> OwnedLock<C, diesel_async::AsyncPgConnection> {
    /// Asks the server whether this session still holds the lock.
    ///
    /// The lock can be lost right after the answer. [`lost`](Self::lost) waits for the end of the connection instead, and sends
    /// nothing.
    ///
    /// # Locking
    ///
    /// One round trip: a `SELECT` of `pg_locks` that fails unless this session holds every key in the lock's mode.
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] if a key is not held, or if the connection was lost. [`Error::Database`] for any other error, such as in a
    /// failed transaction.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future has no effect on the lock.
    pub async fn check(&mut self) -> Result<(), Error> {
        self.ask().await
    }

    /// Resolves when the connection has ended, and the lock with it. It sends nothing to the server.
    ///
    /// For a body that works elsewhere: `tokio::select!` between the work and this future. Work on [`conn`](Self::conn) itself fails
    /// when the connection ends.
    ///
    /// The connection's task notices at once that the server has closed it, as after `pg_terminate_backend` or a shutdown. A network
    /// that drops every packet is noticed when TCP gives up: set `keepalives_idle` in the URL. A lock that was released while its
    /// session goes on, as by `pg_advisory_unlock_all`, is not noticed: see [`check`](Self::check).
    ///
    /// Notifications (`LISTEN`) that arrive on this connection in the meantime are discarded. If you listen on it, read
    /// `notifications_stream()` instead: it ends with the connection.
    ///
    /// A connection that `AsyncPgConnection::try_from` made from a client alone has no such task. It asks the server every second.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn lost(&mut self) {
        let conn = (self.place)(connection(&mut self.parts));
        crate::driver::until_ended(conn).await;
    }

    /// Releases the lock and gives the connection back.
    ///
    /// # Locking
    ///
    /// As [`session::release`](crate::session::release).
    ///
    /// # Errors
    ///
    /// As [`session::release`](crate::session::release) of an `Ok`: [`Error::LockLost`] if the lock was no longer held,
    /// [`Error::HoldExceeded`], and [`Error::RolledBack`] or [`Error::ForeignTransaction`] if a transaction was left open. The error also
    /// gives the connection back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection, which releases the lock.
    pub async fn release(self) -> Result<C, OwnedLockError<C>> {
        self.finish().await
    }
}

#[cfg(feature = "postgres")]
impl<C> OwnedLock<C, diesel::pg::PgConnection> {
    /// Asks the server whether this session still holds the lock. Nothing reads a blocking connection between its statements, so asking
    /// is the only way to notice that it has ended.
    ///
    /// # Locking
    ///
    /// One round trip: a `SELECT` of `pg_locks` that fails unless this session holds every key in the lock's mode.
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] if a key is not held, or if the connection was lost. [`Error::Database`] for any other error, such as in a
    /// failed transaction.
    pub fn check(&mut self) -> Result<(), Error> {
        crate::driver::answered(self.ask())
    }

    /// Releases the lock and gives the connection back.
    ///
    /// # Locking
    ///
    /// As [`session::release`](crate::session::release).
    ///
    /// # Errors
    ///
    /// As [`session::release`](crate::session::release) of an `Ok`. The error also gives the connection back.
    pub fn release(self) -> Result<C, OwnedLockError<C>> {
        crate::driver::answered(self.finish())
    }
}

impl<C, D: Driver> Drop for OwnedLock<C, D> {
    fn drop(&mut self) {
        if let Some((mut connection, locks)) = self.parts.take() {
            drop(Held::attach(&mut *connection, self.place, locks));
        }
    }
}

/// Shows the lock, never the connection.
impl<C, D: Driver> fmt::Debug for OwnedLock<C, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLock")
            .field("lock", &self.acquired.name.text())
            .finish_non_exhaustive()
    }
}
