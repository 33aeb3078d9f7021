//! The guard of session-level locks that owns its connection, so that it can be stored, or moved to
//! a task.

use super::begin::take_recorded;
use super::call::{Call, Way};
use super::check::check;
use super::guard::ConnAccessor;
use super::lock_info::LockInfo;
use super::pool_poll::PoolPoll;
use crate::driver::Driver;
use crate::request::POLL;
use crate::{Error, PoolError, Request};
#[cfg(feature = "postgres")]
use diesel::pg::PgConnection;
use diesel::result::Error as DieselError;
#[cfg(feature = "diesel-async")]
use diesel_async::AsyncPgConnection;
use std::fmt;

/// The guard of one session-level lock or several, with the connection that holds them.
///
/// It borrows nothing, so it can be stored in a field or moved to another task or thread.
/// [`conn`](Self::conn) borrows the connection for queries, `check` asks whether the lock is still
/// held, and `finish` releases the lock and returns the connection.
///
/// If the guard is dropped instead, an async connection is closed, which releases the lock; a pool
/// opens another. A blocking connection is rolled back, releases the lock, and returns to its pool.
///
/// [`session::acquire_owned`](crate::session::acquire_owned) and
/// [`session::acquire_from`](crate::session::acquire_from) return the guard of a connection of
/// diesel-async, `OwnedLockGuard<C>`. The guard of a blocking one is `blocking::OwnedLockGuard<C>`.
/// The guide's page [`owned_locks`](crate::guide::owned_locks) has examples.
#[must_use = "dropping the guard of a lock closes its connection: end with `guard.finish(result)`"]
pub struct OwnedLockGuard<
    C,
    #[cfg(feature = "diesel-async")] D: Driver = AsyncPgConnection,
    #[cfg(not(feature = "diesel-async"))] D: Driver,
> {
    /// In a box because the checks of debug builds identify it by its address. `None` once it is
    /// returned.
    connection: Option<Box<C>>,
    accessor: ConnAccessor<C, D>,
    call: Call,
}

pub(crate) async fn acquire_owned<C, D: Driver>(
    connection: C,
    accessor: ConnAccessor<C, D>,
    request: Request,
) -> Result<OwnedLockGuard<C, D>, OwnedLockError<C>> {
    let mut guard = OwnedLockGuard::new(connection, accessor, request);
    let (conn, call) = guard.parts();
    match take_recorded(conn, call).await {
        Ok(()) => Ok(guard),
        Err(error) => Err(OwnedLockError {
            error,
            connection: Box::new(guard.into_connection()),
        }),
    }
}

/// Takes a connection for each try, and gives it to the guard if the try takes the locks.
pub(crate) async fn acquire_from<C, D, F>(
    connect: impl Fn() -> F,
    accessor: ConnAccessor<C, D>,
    mut request: Request,
) -> Result<OwnedLockGuard<C, D>, Error>
where
    D: Driver,
    F: Future<Output = Result<C, PoolError>>,
{
    request.poll = request.poll.or(Some(POLL));
    let mut tries = PoolPoll::session(request);
    loop {
        let connection = connect().await?;
        match try_owned(&mut tries, connection, accessor).await {
            Ok(lock) => return Ok(lock),
            Err((Some(error), _)) => return Err(error),
            Err((None, connection)) => drop(connection),
        }
        tries.pause::<D>().await;
    }
}

/// One try of a call that polls. If it does not take the locks, it returns the connection, and an
/// error if it was the last try.
pub(crate) async fn try_owned<C, D: Driver>(
    tries: &mut PoolPoll,
    connection: C,
    accessor: ConnAccessor<C, D>,
) -> Result<OwnedLockGuard<C, D>, (Option<Error>, C)> {
    let mut guard = OwnedLockGuard::new(connection, accessor, tries.next());
    let (conn, call) = guard.parts();
    let error = match tries.attempt_call(conn, call).await {
        Ok(true) => return Ok(guard),
        Ok(false) => None,
        Err(error) => Some(error),
    };
    Err((error, guard.into_connection()))
}

impl<C, D: Driver> OwnedLockGuard<C, D> {
    fn new(connection: C, accessor: ConnAccessor<C, D>, request: Request) -> Self {
        let mut connection = Box::new(connection);
        let call = Call::new(accessor(&mut connection), Way::Session, request);
        Self {
            connection: Some(connection),
            accessor,
            call,
        }
    }

    /// Returns the connection that holds the lock.
    ///
    /// Transactions on it work as usual. One that is open when the lock is released is rolled back.
    pub fn conn(&mut self) -> &mut C {
        connection(&mut self.connection)
    }

    /// Returns the key of the lock, and the duration of its acquisition.
    #[must_use]
    pub fn info(&self) -> LockInfo<D> {
        self.call.info()
    }

    fn parts(&mut self) -> (&mut D, &mut Call) {
        let conn = (self.accessor)(connection(&mut self.connection));
        (conn, &mut self.call)
    }

    /// The connection; a call that has not ended is abandoned.
    fn into_connection(mut self) -> C {
        let (conn, call) = self.parts();
        call.abandon_unless_ended(conn);
        match self.connection.take() {
            Some(connection) => *connection,
            None => unreachable!("{TAKEN}"),
        }
    }

    /// Moves the connection into `work`, which returns it. If `work` does not return it, the lock
    /// has ended with the connection.
    #[cfg(all(feature = "migrations", feature = "diesel-async"))]
    pub(crate) async fn lend<T, W>(mut self, work: impl FnOnce(C) -> W) -> Option<(Self, T)>
    where
        W: Future<Output = Option<(C, T)>>,
    {
        let connection = self.connection.take()?;
        // They identify the connection by its address, which changes.
        self.call.checks = crate::debug::Checks::default();
        let (connection, answer) = work(*connection).await?;
        self.connection = Some(Box::new(connection));
        Some((self, answer))
    }

    pub(crate) async fn end(mut self, is_ok: bool) -> Result<C, Error> {
        let (conn, call) = self.parts();
        super::finish(conn, call, is_ok).await?;
        Ok(self.into_connection())
    }

    async fn end_with<T, E, F: Into<E> + From<Error>>(
        self,
        result: Result<T, E>,
    ) -> Result<(C, T), E> {
        let ended = self.end(result.is_ok()).await;
        let value = result?;
        let connection = ended.map_err(|error| F::from(error).into())?;
        Ok((connection, value))
    }
}

fn connection<C>(connection: &mut Option<Box<C>>) -> &mut C {
    match connection {
        Some(connection) => connection,
        None => unreachable!("{TAKEN}"),
    }
}

const TAKEN: &str = "only the end of the guard takes the connection";

#[cfg(feature = "diesel-async")]
impl<C> OwnedLockGuard<C, AsyncPgConnection> {
    /// Asks the server whether this session still holds the lock, as
    /// [`LockInfo::check`](crate::LockInfo::check) does in a body, and is as cancel safe.
    ///
    /// [`lost`](Self::lost) waits for the end of the connection instead, and sends nothing.
    pub async fn check(&mut self) -> Result<(), Error> {
        let info = self.info();
        check(self.parts().0, &info).await
    }

    /// Waits until the connection, and the lock with it, has ended. It sends nothing to the server.
    ///
    /// For a body that uses other connections: `tokio::select!` between the body and this future.
    /// A query on [`conn`](Self::conn) itself fails when the connection ends.
    ///
    /// The connection's task notices at once that the server has closed the connection, as after
    /// `pg_terminate_backend` or a shutdown. If the network drops every packet, it notices when TCP
    /// gives up: set `keepalives_idle` in the URL. It does not notice that the lock was released
    /// while the session goes on, as by `pg_advisory_unlock_all`: see [`check`](Self::check).
    ///
    /// Notifications (`LISTEN`) that arrive on this connection in the meantime are discarded. If
    /// you listen on it, read `notifications_stream()` instead: it ends with the connection.
    ///
    /// A connection that `AsyncPgConnection::try_from` made from a client has no such task. This
    /// future then queries the server every second.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only waits.
    pub async fn lost(&mut self) {
        crate::driver::until_ended(self.parts().0).await;
    }

    /// Releases the lock. Returns the connection and the value of an `Ok`, or the error.
    ///
    /// After an `Err` the connection is dropped; a pooled one returns to its pool. To keep a
    /// connection of your own after an error of the body, pass the result as a value: `let
    /// (conn, result) = guard.finish(Ok::<_, Error>(result)).await?`.
    ///
    /// It sends the message of [`LockGuard::finish`](crate::LockGuard::finish) under a
    /// session-level lock, and has its errors.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection, which releases the lock.
    pub async fn finish<T, E: From<Error>>(self, result: Result<T, E>) -> Result<(C, T), E> {
        self.end_with::<_, _, Error>(result).await
    }

    /// Like [`finish`](Self::finish), for an error type that has `From<diesel::result::Error>` and
    /// not `From<Error>`, as [`LockGuard::finish_diesel`](crate::LockGuard::finish_diesel).
    pub async fn finish_diesel<T, E: From<DieselError>>(
        self,
        result: Result<T, E>,
    ) -> Result<(C, T), E> {
        self.end_with::<_, _, DieselError>(result).await
    }
}

#[cfg(feature = "postgres")]
impl<C> OwnedLockGuard<C, PgConnection> {
    /// Asks the server, in one round trip, whether this session still holds the lock, with the
    /// errors of [`LockInfo::check`](crate::LockInfo::check). A blocking connection does not notice
    /// between two statements that it has ended.
    pub fn check(&mut self) -> Result<(), Error> {
        let info = self.info();
        crate::driver::block_on(check(self.parts().0, &info))
    }

    /// Releases the lock, in one round trip. Returns the connection and the value of an `Ok`, or
    /// the error; after an `Err` the connection is dropped. Its errors are those of an async
    /// guard's `finish`.
    pub fn finish<T, E: From<Error>>(self, result: Result<T, E>) -> Result<(C, T), E> {
        crate::driver::block_on(self.end_with::<_, _, Error>(result))
    }

    /// Like [`finish`](Self::finish), for an error type that has `From<diesel::result::Error>` and
    /// not `From<Error>`.
    pub fn finish_diesel<T, E: From<DieselError>>(self, result: Result<T, E>) -> Result<(C, T), E> {
        crate::driver::block_on(self.end_with::<_, _, DieselError>(result))
    }
}

impl<C, D: Driver> Drop for OwnedLockGuard<C, D> {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            self.call.abandon_unless_ended((self.accessor)(connection));
        }
    }
}

/// Shows the lock, never the connection.
impl<C, D: Driver> fmt::Debug for OwnedLockGuard<C, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLockGuard")
            .field("lock", &self.call.lock_name())
            .finish_non_exhaustive()
    }
}

/// The error of [`session::acquire_owned`](crate::session::acquire_owned), with the connection.
///
/// It converts into [`Error`] and into [`diesel::result::Error`], so that `?` works where the
/// connection is not needed again.
///
/// The connection is usable unless the error says otherwise. After [`Error::NotAvailable`],
/// [`Error::TimedOut`] and [`Error::PooledSession`] it is as it was before the call.
///
/// ```
/// use advisory_runtime::{Error, OwnedLockError};
///
/// /// Another session is the leader: keep the connection, and ask again later.
/// fn connection<C>(failed: OwnedLockError<C>) -> Result<C, Error> {
///     match failed.error {
///         Error::NotAvailable { .. } => Ok(*failed.connection),
///         error => Err(error),
///     }
/// }
/// ```
#[non_exhaustive]
pub struct OwnedLockError<C> {
    /// The error.
    pub error: Error,
    /// The connection, without the lock. The box keeps a `Result` with this error small.
    pub connection: Box<C>,
}

impl<C> From<OwnedLockError<C>> for Error {
    fn from(failed: OwnedLockError<C>) -> Self {
        failed.error
    }
}

impl<C> From<OwnedLockError<C>> for DieselError {
    fn from(failed: OwnedLockError<C>) -> Self {
        failed.error.into()
    }
}

/// The source of the [`Error`].
impl<C> fmt::Display for OwnedLockError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<C> fmt::Debug for OwnedLockError<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLockError")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<C> std::error::Error for OwnedLockError<C> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
