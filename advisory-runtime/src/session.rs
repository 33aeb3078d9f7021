//! Session-level locks: acquire, release, verify.
//!
//! What `#[advisory_lock(…, scope = "session")]` expands to. The body stands in no transaction, so it can run several, or none;
//! whatever it commits is visible while the lock is still held. A lock that only guards one transaction is better taken with
//! [`xact`](crate::xact), which nothing can separate from its commit.

pub use crate::lock::OwnedLockError;
use crate::lock::{self, Place};
pub use crate::xact::Held;
use crate::{Connection, Error, Request};
use diesel_async::AsyncPgConnection;

/// One session-level lock or several, and the connection of diesel-async that holds them.
pub type OwnedLock<C> = lock::OwnedLock<C, AsyncPgConnection>;

/// Takes the session-level advisory lock on a key, or on several.
///
/// # Locking
///
/// One round trip: `SELECT pg_advisory_lock(key)`. Several keys are taken for the message's own transaction first
/// (`SELECT pg_advisory_xact_lock(a), pg_advisory_xact_lock(b)`), which waits, and for the session behind that, so that a refused wait
/// leaves none of them behind. Held until [`release`], or until the session ends. The server counts: a session that holds the lock
/// already gets it at once, and has to release it as often.
///
/// The first call of a process asks for the setting `advisory.pooler`, in a round trip of its own. On a session whose process id was
/// made up by a pooler, the call needs to know that the pooler keeps its clients' sessions: [`verify`] has shown it to this process, or
/// the setting is `session`.
///
/// # Errors
///
/// As [`xact::begin`](crate::xact::begin). [`Error::InTransaction`] inside a transaction, whose commit would come after the
/// release; one that `begin_test_transaction` opened counts as none. [`Error::PooledSession`] where the first call of the process finds
/// `advisory.pooler` set to `transaction`, and behind a pooler of which neither [`verify`] nor that setting says that it keeps sessions.
/// After an error no lock of this call is held. [`Error::TimedOut`] and [`Error::Deadlock`] leave the connection usable; any other
/// error of the wait closes it, since the lock may have been granted.
///
/// # Cancel safety
///
/// As [`xact::begin`](crate::xact::begin): dropping it closes the connection, and no lock and no waiter is left.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, Request, Wait, session};
/// use diesel_async::AsyncPgConnection;
///
/// # async fn f(conn: &mut AsyncPgConnection) -> Result<(), Error> {
/// let mut held = session::acquire(conn, Request::new(42).wait(Wait::Never)).await?;
/// let result: Result<(), Error> = work(held.conn()).await;
/// session::release(held, result).await
/// # }
/// # async fn work(_: &mut AsyncPgConnection) -> Result<(), Error> { Ok(()) }
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn acquire<C: Connection>(
    conn: &mut C,
    request: impl Into<Request>,
) -> impl Future<Output = Result<Held<'_, C>, Error>> {
    acquire_at(conn, C::pg, request.into().with_origin())
}

/// Takes session-level locks on a connection that the guard owns: one that can be stored, and moved to a task.
///
/// For a lock that outlives the function that takes it: a leader that runs for days, a lock for as long as a connection of a client
/// lives, a worker that hands its lock to another task. A lock that ends with a function is better taken with [`acquire`], or the
/// attribute.
///
/// The connection is an `AsyncPgConnection`, or one of a pool by value: deadpool's `Object`, or of bb8 what `get_owned` returns.
///
/// # Locking
///
/// As [`acquire`]. Held until [`release`](crate::OwnedLock::release), until the guard is dropped, or until the session ends.
///
/// # Errors
///
/// Those of [`acquire`], and the connection with them.
///
/// # Cancel safety
///
/// Dropping it drops the connection, which is closed: no lock and no waiter is left.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, Request, Wait, session};
/// use diesel_async::AsyncPgConnection;
///
/// struct Importer {
///     lock: session::OwnedLock<AsyncPgConnection>,
/// }
///
/// impl Importer {
///     /// `None` while another process imports.
///     async fn start(conn: AsyncPgConnection) -> Result<Option<Self>, Error> {
///         match session::acquire_owned(conn, Request::new(42).wait(Wait::Never)).await {
///             Ok(lock) => Ok(Some(Self { lock })),
///             Err(failed) if failed.error.is_busy() => Ok(None),
///             Err(failed) => Err(failed.into()),
///         }
///     }
///
///     async fn stop(self) -> Result<AsyncPgConnection, Error> {
///         Ok(self.lock.release().await?)
///     }
/// }
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn acquire_owned<C: Connection>(
    connection: C,
    request: impl Into<Request>,
) -> impl Future<Output = Result<OwnedLock<C>, OwnedLockError<C>>> {
    lock::acquire_owned(connection, C::pg, request.into().with_origin())
}

/// [`acquire`] for a connection that is part of something else.
#[doc(hidden)]
pub async fn acquire_at<O: ?Sized>(
    owner: &mut O,
    place: Place<O, AsyncPgConnection>,
    request: Request,
) -> Result<Held<'_, O>, Error> {
    lock::acquire(owner, place, request).await
}

/// Releases the locks, whatever the result is.
///
/// # Locking
///
/// One round trip: a `SELECT` of `pg_advisory_unlock(key)` that fails unless the lock was held. A transaction that the body has left
/// open through Diesel is rolled back first.
///
/// # Errors
///
/// The body's own error as it is. For an `Ok`: [`Error::LockLost`] when a lock was not held any more, as after a lost
/// connection or a `pg_advisory_unlock_all` in the body; [`Error::HoldExceeded`]; [`Error::RolledBack`] and
/// [`Error::ForeignTransaction`] when the body left a transaction open; one begun by SQL that has not failed is found in debug builds
/// only.
///
/// # Cancel safety
///
/// Dropping it closes the connection, which releases the locks.
///
/// # Examples
///
/// The page of [`acquire`] has one.
pub async fn release<T, E, O>(held: Held<'_, O>, result: Result<T, E>) -> Result<T, E>
where
    E: From<Error>,
    O: ?Sized,
{
    crate::xact::finish(held, result).await
}

/// Shows on two connections of a pool that a session-level lock of one keeps the other out. For the start of a program.
///
/// Behind a pooler in transaction mode two clients share a server's session, both get the lock, and neither can be sure to
/// release it; some relatives of PostgreSQL accept the functions and do nothing. Behind a pooler in session mode a success also lets
/// this process take session-level locks there, which are refused until then.
///
/// # Locking
///
/// Asks whether the server is a standby (`pg_is_in_recovery()`), and whether each connection keeps its backend (`pg_backend_pid()`)
/// while the other has a transaction open. Only then it takes the lock on a random key on the first connection, and tries it on the
/// second. Nothing is held afterwards.
///
/// # Errors
///
/// [`Error::Standby`] on a standby, [`Error::PooledSession`] when the connections do not keep their sessions, [`Error::UnsupportedServer`] when they do and the
/// lock keeps nobody out, [`Error::Database`], and [`Error::Pool`] when the pool does not lend two connections at once.
///
/// # Cancel safety
///
/// Not cancel safe: the connections are left with what was taken. Drop them, or the pool.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "deadpool")]
/// # mod start {
/// use advisory_runtime::{Error, session};
/// use diesel_async::{AsyncPgConnection, pooled_connection::deadpool::Pool};
///
/// async fn start(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
///     session::verify(pool).await
/// }
/// # }
/// ```
pub async fn verify<P: crate::Pool + ?Sized>(pool: &P) -> Result<(), Error> {
    let mut first = pool.connection().await?;
    let mut second = pool.connection().await?;
    lock::verify(first.pg(), second.pg()).await
}
