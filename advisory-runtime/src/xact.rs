//! Transaction-level locks: begin, finish.
//!
//! What `#[advisory_lock(…, scope = "xact")]` expands to, as functions: [`begin`] opens a transaction that holds the lock,
//! the caller does its work on [`Held::conn`](crate::Held::conn), [`finish`] commits or rolls back. Two calls and not a closure, because a
//! helper that takes an async closure costs every generic caller's future its `Send`.

use crate::lock::{self, Place};
use crate::{Connection, Error, Request};
use diesel_async::AsyncPgConnection;

/// One lock or several, held on a connection of diesel-async.
pub type Held<'o, O> = lock::Held<'o, O, AsyncPgConnection>;

/// Opens a transaction that holds the advisory lock on a key, or on several.
///
/// # Locking
///
/// One round trip. Outside a transaction it sends, as one message, `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`, the
/// settings described below, `SELECT pg_advisory_xact_lock(key)` and `BEGIN`: held until the transaction ends. Inside a
/// transaction it sends `SAVEPOINT` and the lock: `Ok` keeps it to the end of the outer transaction, `Err` frees it with the
/// savepoint.
///
/// For [`Isolation::RepeatableRead`] and [`Isolation::Serializable`] the snapshot has to be younger than the lock, so the same
/// message takes it first as a session-level lock (`BEGIN; SELECT pg_advisory_lock(key); COMMIT`), opens the transaction, and
/// hands it over (`SELECT pg_try_advisory_xact_lock(key), pg_advisory_unlock(key)`).
///
/// It waits as long as the request says: [`Wait::For`] sets `lock_timeout`, for several keys to what is left of the budget
/// before each, by the server's clock, and gives it back before the body runs; [`Wait::Never`] sends `pg_try_advisory_xact_lock`
/// and asks behind it, without waiting in between, what it got (behind a pooler in the same message, which fails on the server where
/// it got nothing, so that no prepared statement is needed). `statement_timeout` is left alone and can end the wait too.
///
/// For the length of the transaction it sets `client_connection_check_interval` to one second where it is off, on Linux
/// servers, so that the server notices a client that dies while it waits; and `advisory.token`, by which [`finish`] knows the
/// transaction again.
///
/// # Errors
///
/// [`Error::NotAvailable`], [`Error::TimedOut`] (55P03), [`Error::Deadlock`] (40P01), [`Error::Cancelled`] (57014),
/// [`Error::SelfDeadlock`], [`Error::StaleSnapshot`], [`Error::InTransaction`], [`Error::ForeignTransaction`],
/// [`Error::Standby`], [`Error::PooledSession`], [`Error::NoKeys`], [`Error::BrokenConnection`], and [`Error::Database`] for
/// every other answer. After an error no lock of this call is held. The transaction around it goes on, unless it had failed or
/// ended before; one that Diesel does not know of can only be rolled back.
///
/// # Cancel safety
///
/// Cancel safe in that nothing is left: dropping the future, or what it returned, cancels the statement that is running and
/// rolls back. The place in the queue is lost. A connection of your own goes on; so does the transaction around a nested call,
/// as after a rollback to its savepoint. The connection's next statement starts a tenth of a second later,
/// up to 0.35 seconds behind one that was cancelled, so that a cancel request that comes late hits nothing else; one that the
/// server itself holds up for longer still can. A pooled connection is closed instead, and the pool opens
/// another. Where the cancel request does not arrive (see [`cancel`](crate::cancel) for TLS), a statement that waits goes on
/// until it ends by itself, and holds up what comes behind it.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, Request, Wait, xact};
/// use diesel_async::AsyncPgConnection;
///
/// # async fn f(conn: &mut AsyncPgConnection) -> Result<(), Error> {
/// let mut held = xact::begin(conn, Request::new(42).wait(Wait::Never)).await?;
/// let result: Result<(), Error> = work(held.conn()).await;
/// xact::finish(held, result).await
/// # }
/// # async fn work(_: &mut AsyncPgConnection) -> Result<(), Error> { Ok(()) }
/// ```
///
/// [`Isolation::RepeatableRead`]: crate::Isolation::RepeatableRead
/// [`Isolation::Serializable`]: crate::Isolation::Serializable
/// [`Wait::For`]: crate::Wait::For
/// [`Wait::Never`]: crate::Wait::Never
#[cfg_attr(debug_assertions, track_caller)]
pub fn begin<C: Connection>(
    conn: &mut C,
    request: impl Into<Request>,
) -> impl Future<Output = Result<Held<'_, C>, Error>> {
    begin_at(conn, C::pg, request.into().with_origin())
}

/// [`begin`] for a connection that is part of something else.
#[doc(hidden)]
pub async fn begin_at<O: ?Sized>(
    owner: &mut O,
    place: Place<O, AsyncPgConnection>,
    request: Request,
) -> Result<Held<'_, O>, Error> {
    lock::begin(owner, place, request).await
}

/// Commits if the result is `Ok`, rolls back if it is `Err`, and releases the lock.
///
/// # Locking
///
/// One round trip: a check that the transaction is alive and still the one that [`begin`] opened, and `COMMIT`; or
/// `ROLLBACK`. The server frees the lock after the commit is visible. Inside an outer transaction: `RELEASE SAVEPOINT`, which
/// keeps the lock, or `ROLLBACK TO SAVEPOINT`, which frees it.
///
/// # Errors
///
/// The body's own error as it is, also when the rollback fails. For an `Ok` that could not be committed:
/// [`Error::RolledBack`] (25P02), [`Error::TransactionEnded`], [`Error::HoldExceeded`], [`Error::CommitUnknown`], or
/// [`Error::Database`], such as a deferred constraint.
///
/// # Cancel safety
///
/// Not cancel safe: whether a dropped commit happened is not known. No lock and no open transaction is left, as for
/// [`begin`].
///
/// # Examples
///
/// The page of [`begin`] has one.
pub async fn finish<T, E, O>(held: Held<'_, O>, result: Result<T, E>) -> Result<T, E>
where
    E: From<Error>,
    O: ?Sized,
{
    match finish_at(held, result.is_ok()).await {
        Ok(()) => result,
        Err(error) => Err(error.into()),
    }
}

#[doc(hidden)]
pub async fn finish_at<O: ?Sized>(held: Held<'_, O>, is_ok: bool) -> Result<(), Error> {
    lock::finish(held, is_ok).await
}

#[doc(hidden)]
pub async fn exceed<O: ?Sized>(held: Held<'_, O>) -> Error {
    lock::exceed(held).await
}
