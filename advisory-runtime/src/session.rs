//! Session-level locks, without the attribute.
//!
//! The body is not in a transaction, so it can run several, or none. What it commits is visible
//! while the lock is still held. For a lock that guards a single transaction use
//! [`xact`](crate::xact), which releases the lock with the commit.
//!
//! `#[advisory_lock(…, scope = "session")]` expands to the same calls.
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
/// One round trip: `SELECT pg_advisory_lock(key)`, which compares process ids while it computes its
/// argument. Several keys are taken for the message's own transaction first
/// (`SELECT pg_advisory_xact_lock(a), pg_advisory_xact_lock(b)`), which waits, and then for the
/// session, so that a refused wait leaves none of them held. Held until [`LockGuard::finish`], or
/// until the session ends. The server counts: a session that already holds the lock gets it at
/// once, and must release it as often.
///
/// If the server's process id (`pg_backend_pid()`) is not the one that the connection was told at
/// its start, there is a pooler. The call is then refused unless the pooler is known to be in
/// session mode: [`verify`] has shown it to this process, or the setting `advisory.pooler` is
/// `session`. The release compares too. For one key it is a query, which the first release on a
/// connection prepares in a round trip of its own, as the first call of a process reads the
/// setting.
///
/// # Errors
///
/// As [`xact::begin`](crate::xact::begin). [`Error::InTransaction`] inside a transaction, whose
/// commit would come after the release; the transaction of `begin_test_transaction` does not count.
/// [`Error::PooledSession`] where the first call of the process finds `advisory.pooler` set to
/// `transaction`, and behind a pooler that is not known to be in session mode. After an error no
/// lock of this call is held. [`Error::NotAvailable`], [`Error::TimedOut`] and [`Error::Deadlock`]
/// leave the connection usable if the server confirms that it holds none of the keys; any other
/// error of the wait closes it, since the lock may have been granted.
///
/// # Cancel safety
///
/// As [`xact::begin`](crate::xact::begin): dropping the future closes the connection. No lock and,
/// without a pooler, no waiter is left.
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
/// For a lock that outlives the function that takes it: a leader that runs for days, a lock for as
/// long as a client is connected, a worker that hands its lock to another task. For a lock that
/// ends with a function, use [`acquire`] or the attribute.
///
/// The connection is an `AsyncPgConnection`, or a pooled one by value: deadpool's `Object`, or what
/// bb8's `get_owned` returns.
///
/// # Locking
///
/// As [`acquire`]. Held until [`finish`](crate::OwnedLockGuard::finish), until the guard is
/// dropped, or until the session ends.
///
/// # Errors
///
/// Those of [`acquire`]. The error also gives the connection back.
///
/// # Cancel safety
///
/// Dropping the future closes the connection. No lock and, without a pooler, no waiter is left.
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

/// Takes session-level locks on a connection of a pool, with a guard that owns that connection.
/// While it waits, the connection is in the pool.
///
/// For a lock that is waited for as long as another process holds it: a standby of a leader, an
/// importer in line. For a connection of your own use [`acquire_owned`], which holds it while it
/// waits.
///
/// The pool is one of bb8 or deadpool, or a [`Pool`](crate::Pool) of your own with
/// [`owned_connection`](crate::Pool::owned_connection).
///
/// # Locking
///
/// `SELECT pg_try_advisory_lock(key)` on a connection from the pool, which it returns if the lock
/// is held elsewhere; then a pause, and again. The pauses are those of [`Request::poll`], from 250
/// ms if the request does not say. A request without a wait polls until the lock is free; with
/// [`Wait::Never`](crate::Wait::Never) it tries once. Held until
/// [`finish`](crate::OwnedLockGuard::finish), until the guard is dropped, or until the session
/// ends.
///
/// The time in which the pool has no connection counts as part of the wait, but only the pool's own
/// timeout bounds it; with [`Wait::Never`](crate::Wait::Never) it waits for a connection for five
/// seconds at most.
///
/// # Errors
///
/// Those of [`acquire`], and [`Error::Pool`] with the pool's own error. After an error the pool has
/// the connection, or opens another.
///
/// # Cancel safety
///
/// Dropping the future between two tries, or while it waits for the pool, has no effect: it has no
/// connection then. Dropped during a try, it closes that connection, and the pool opens another. No
/// lock is left.
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
/// Behind a pooler in transaction mode two clients share one session of the server: both get the
/// lock, and neither can be sure to release it. Some databases that speak PostgreSQL's protocol
/// accept the functions and do nothing. Behind a pooler in session mode, session-level locks are
/// refused until this function has succeeded, unless the setting `advisory.pooler` is `session`.
///
/// # Locking
///
/// Asks whether the server is a standby (`pg_is_in_recovery()`) or a worker node of Citus, and
/// whether each connection keeps its backend (`pg_backend_pid()`) while the other has a transaction
/// open. Then it takes the lock on a random key on the first connection, and tries it on the
/// second: on a number, and on a pair of numbers. Nothing is held afterwards: after an error that
/// can have left a lock, the pool drops both connections.
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
