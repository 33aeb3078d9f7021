//! Session-level locks, without the attribute.
//!
//! The body is not in a transaction, so it can run several, or none. Its commits are visible while
//! the lock is still held. For a lock that guards a single transaction, use [`xact`](crate::xact),
//! which releases the lock with the commit.
//!
//! A function with `#[advisory_lock(…, scope = "session")]` does the same.
//!
//! ```no_run
//! use advisory_runtime::{Error, Request, session};
//! use diesel_async::AsyncPgConnection;
//!
//! async fn rebuild(conn: &mut AsyncPgConnection) -> Result<(), Error> {
//!     let mut guard = session::acquire(conn, Request::new(42)).await?;
//!     let result = in_steps(guard.conn()).await; // each step commits by itself
//!     guard.finish(result).await
//! }
//! # async fn in_steps(_: &mut AsyncPgConnection) -> Result<(), Error> { Ok(()) }
//! ```

use crate::{Connection, Error, LockGuard, OwnedLockError, OwnedLockGuard, Request, lock, pooler};

/// Takes the session-level advisory lock on a key, or on several.
///
/// # Locking
///
/// One round trip: `SELECT pg_advisory_lock(key)`. Several keys are first taken for the message's
/// own transaction (`SELECT pg_advisory_xact_lock(a), pg_advisory_xact_lock(b)`), which waits, and
/// then for the session, so that a refused wait leaves none of them held. Held until
/// [`LockGuard::finish`], or until the session ends. A session that already holds the lock gets it
/// at once, and must release it as often as it took it.
///
/// The statement also compares the server's process id (`pg_backend_pid()`) with the one that the
/// connection received at its start. If they differ, there is a pooler, and the call is refused
/// unless the pooler is known to be in session mode: [`verify`] has succeeded in this process, or
/// the setting `advisory.pooler` is `session`. The release compares them too.
///
/// One more round trip reads the setting in the first call of a process, and one more prepares the
/// release of one key on each connection.
///
/// # Errors
///
/// Those of [`xact::begin`](crate::xact::begin). [`Error::InTransaction`] inside a transaction,
/// since its commit would come after the release; the transaction of `begin_test_transaction` does
/// not count. [`Error::PooledSession`] if the setting `advisory.pooler` is `transaction` in the
/// first call of the process, and for a pooler that is not known to be in session mode.
///
/// After an error no lock of this call is held. [`Error::NotAvailable`], [`Error::TimedOut`] and
/// [`Error::Deadlock`] leave the connection usable if the server confirms that it holds none of the
/// keys. Any other error of the wait closes it, since the lock may have been granted.
///
/// # Cancel safety
///
/// Dropping the future closes the connection, as for [`xact::begin`](crate::xact::begin). No lock
/// is left, and no waiter where a cancel request can be sent.
#[cfg_attr(debug_assertions, track_caller)]
pub fn acquire<C: Connection>(
    conn: &mut C,
    request: impl Into<Request>,
) -> impl Future<Output = Result<LockGuard<'_, C>, Error>> {
    lock::acquire(conn, C::pg, request.into().with_origin())
}

/// Takes session-level locks with a guard that owns its connection, and can be stored or moved to a
/// task.
///
/// For a lock that outlives the function that takes it: a leader that runs for days, a lock that
/// lasts as long as a client is connected, a worker that hands its lock to another task. For a lock
/// that ends with a function, use [`acquire`] or the attribute.
///
/// The connection is an `AsyncPgConnection`, or a pooled one by value: deadpool's `Object`, or the
/// result of bb8's `get_owned`.
///
/// It sends what [`acquire`] sends, and is as cancel safe. Its errors also return the connection.
/// The lock is held until [`finish`](crate::OwnedLockGuard::finish), until the guard is dropped, or
/// until the session ends.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, OwnedLockGuard, Request, Wait, session};
/// use diesel_async::AsyncPgConnection;
///
/// struct Importer {
///     lock: OwnedLockGuard<AsyncPgConnection>,
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
///         let (conn, ()) = self.lock.finish(Ok::<_, Error>(())).await?;
///         Ok(conn)
///     }
/// }
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn acquire_owned<C: Connection>(
    connection: C,
    request: impl Into<Request>,
) -> impl Future<Output = Result<OwnedLockGuard<C>, OwnedLockError<C>>> {
    lock::acquire_owned(connection, C::pg, request.into().with_origin())
}

/// Takes session-level locks with a guard that owns a connection of a pool. While it waits, the
/// call occupies no connection.
///
/// For a long wait, such as that of a leader's standby. On a connection of your own use
/// [`acquire_owned`], which occupies it while it waits.
///
/// The pool is one of bb8 or deadpool, or a [`Pool`](crate::Pool) of your own with
/// [`owned_connection`](crate::Pool::owned_connection).
///
/// # Locking
///
/// Polls: each try sends `SELECT pg_try_advisory_lock(key)` on a connection from the pool and, if
/// the lock is held elsewhere, returns the connection. [`Request::poll`] sets the pauses, which
/// begin with 250 ms by default. Without a wait the call polls until the lock is free; with
/// [`Wait::Never`](crate::Wait::Never) it tries once. Held until
/// [`finish`](crate::OwnedLockGuard::finish), until the guard is dropped, or until the session
/// ends.
///
/// The time in which the pool has no connection counts as part of the wait, but only the pool's own
/// timeout ends it. With [`Wait::Never`](crate::Wait::Never) the call waits at most five seconds
/// for a connection.
///
/// # Errors
///
/// Those of [`acquire`], and [`Error::Pool`] with the pool's own error. After an error the pool has
/// the connection, or opens another.
///
/// # Cancel safety
///
/// Between two tries, and while it waits for the pool, the future has no connection, and dropping
/// it has no effect. Dropping it during a try closes that connection, and the pool opens another.
/// No lock is left.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "deadpool")]
/// # mod leader {
/// use advisory_runtime::{Error, Request, session};
/// use diesel_async::{AsyncPgConnection, pooled_connection::deadpool::Pool};
/// use std::time::Duration;
///
/// async fn lead(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
///     let leader = Request::new(7_100).poll(Duration::from_secs(1));
///     let mut lock = session::acquire_from(pool, leader).await?;
///     tokio::select! {
///         () = work() => {}
///         () = lock.lost() => {}
///     }
///     lock.finish(Ok::<_, Error>(())).await?;
///     Ok(())
/// }
/// # async fn work() {}
/// # }
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn acquire_from<P>(
    pool: &P,
    request: impl Into<Request>,
) -> impl Future<Output = Result<OwnedLockGuard<P::Connection<'static>>, Error>>
where
    P: crate::Pool + 'static,
{
    let request = request.into().with_origin();
    let wait = request.budget();
    lock::acquire_from(
        move || crate::pool::connection_for(wait, pool.owned_connection()),
        P::Connection::<'static>::pg,
        request,
    )
}

/// Checks with two connections of a pool that session-level locks exclude each other. Call it when
/// the program starts.
///
/// With a pooler in transaction mode, two clients can share one session of the server: both get the
/// lock, and neither can be sure to release it. Some databases that speak PostgreSQL's protocol
/// accept the functions and do nothing. With a pooler in session mode, session-level locks are
/// refused until this function has succeeded, unless the setting `advisory.pooler` is `session`.
///
/// # Locking
///
/// Asks whether the server is a standby (`pg_is_in_recovery()`) or a worker node of Citus, and
/// whether each connection keeps its backend (`pg_backend_pid()`) while the other has a transaction
/// open. Then it takes a random key of each key space on the first connection, and tries it on the
/// second. Nothing is held afterwards: after an error that can have left a lock, the pool drops
/// both connections.
///
/// # Errors
///
/// [`Error::Standby`] on a standby, [`Error::NotCoordinator`] on a worker node of Citus,
/// [`Error::PooledSession`] if the connections do not keep their sessions,
/// [`Error::UnsupportedServer`] if they do and both get the lock, [`Error::Database`], and
/// [`Error::Pool`] if the pool does not give two connections at once, each within ten seconds or
/// the pool's own limit.
///
/// # Cancel safety
///
/// Dropping the future closes both connections, and the pool opens others. No lock and no
/// transaction is left.
pub async fn verify<P: crate::Pool + ?Sized>(pool: &P) -> Result<(), Error> {
    let (mut first, mut second) = crate::pool::two(pool).await?;
    pooler::verify(first.pg(), second.pg()).await
}
