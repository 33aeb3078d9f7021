//! Transaction-level locks, without the attribute.
//!
//! [`begin`] opens a transaction that holds the lock. Its statements run on [`LockGuard::conn`],
//! and [`LockGuard::finish`] commits or rolls back. [`lock`] takes a lock in a transaction that is
//! already open.
//!
//! A function with `#[advisory_lock(…, scope = "xact")]` does the same. No function here takes a
//! closure, because a generic function cannot require the future of an async closure to be `Send`.
//!
//! Dropping the future of one of these functions before it is ready closes the connection, and with
//! it the transaction around the call; see [`begin`].
//!
//! ```no_run
//! use advisory_runtime::{Error, Request, xact};
//! use diesel_async::AsyncPgConnection;
//!
//! async fn book(conn: &mut AsyncPgConnection) -> Result<(), Error> {
//!     let mut guard = xact::begin(conn, Request::new(42)).await?;
//!     let result = insert(guard.conn()).await;
//!     guard.finish(result).await // commits `Ok`, rolls back `Err`
//! }
//! # async fn insert(_: &mut AsyncPgConnection) -> Result<(), Error> { Ok(()) }
//! ```

use crate::{Connection, Error, LockGuard, LockInfo, Request, lock};
#[cfg(doc)]
use crate::{Isolation, Wait};

/// Opens a transaction that holds the advisory lock on a key, or on several.
///
/// # Locking
///
/// One round trip. Outside of a transaction, one message has
/// `SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE`,
/// `SELECT pg_advisory_xact_lock(key)` and `BEGIN`, and the lock is held until the transaction
/// ends. Inside a transaction, the message sets a `SAVEPOINT` and takes the lock: `Ok` keeps it
/// until the end of the outer transaction, and `Err` releases it with the savepoint.
///
/// For [`Isolation::RepeatableRead`] and [`Isolation::Serializable`] the snapshot must be younger
/// than the lock. The message first takes the lock for the session, then opens the transaction and
/// hands the lock over (`SELECT pg_advisory_xact_lock(key), pg_advisory_unlock(key)`).
///
/// [`Wait::For`] sets `lock_timeout` and restores it before the body runs; with several keys, each
/// wait gets the remaining time, by the server's clock. [`Wait::Never`] sends `BEGIN` and
/// `pg_try_advisory_xact_lock`: in one round trip for one key, in two for several, and in one more
/// if the lock is held. [`Request::poll`] repeats that. `statement_timeout` is not changed, and can
/// end the wait too.
///
/// # Errors
///
/// [`Error::NotAvailable`], [`Error::TimedOut`] (55P03), [`Error::Deadlock`] (40P01),
/// [`Error::Cancelled`] (57014), [`Error::LockTableFull`] (53200), [`Error::SelfDeadlock`],
/// [`Error::TaskDeadlock`], [`Error::StaleSnapshot`], [`Error::InTransaction`],
/// [`Error::ForeignTransaction`], [`Error::Standby`], [`Error::PooledSession`], [`Error::NoKeys`],
/// [`Error::BrokenConnection`], and [`Error::Database`] for every other answer. After an error no
/// lock of this call is held. An outer transaction goes on, unless it had failed or ended before.
/// One that Diesel does not know of can only be rolled back; if it had failed, the connection is
/// closed.
///
/// # Cancel safety
///
/// Not cancel safe for the connection: dropping the future closes it, as dropping the [`LockGuard`]
/// does, and with it the transaction around a nested call. No lock and no open transaction is
/// left, and no waiter where a cancel request can be sent. Between two tries of [`Request::poll`],
/// a drop leaves the connection open. See [`cancellation`](crate::guide::cancellation).
#[cfg_attr(debug_assertions, track_caller)]
pub fn begin<C: Connection>(
    conn: &mut C,
    request: impl Into<Request>,
) -> impl Future<Output = Result<LockGuard<'_, C>, Error>> {
    lock::begin(conn, C::pg, request.into().with_origin())
}

/// Takes the advisory lock on a key, or on several, in an open transaction, which holds it until
/// its end.
///
/// For a key that is known only after a first read. Read the guarded rows again after the call: an
/// earlier holder may have changed them since the first read. If the key is known before the
/// transaction, use [`begin`] or the attribute. Diesel must have opened the transaction, or it must
/// be that of a body under `#[advisory_lock]`.
///
/// # Locking
///
/// One round trip: `SAVEPOINT`, `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`,
/// `SELECT pg_advisory_xact_lock(key)` and `RELEASE SAVEPOINT` in one message. The `SET` does
/// nothing under READ COMMITTED, and fails at the stricter levels, where the snapshot is older than
/// the lock. [`Wait::Never`] sends the query of [`try_lock`].
///
/// Held until the transaction ends, or until a savepoint around the call is rolled back.
/// [`Request::max_hold`] has no body to bound: it only limits, at the server, how long the client
/// may be idle until the end of the transaction.
///
/// # Errors
///
/// [`Error::NotInTransaction`] outside of a transaction, where the lock would be released at once,
/// and directly in the transaction of `begin_test_transaction`, which does not count as one.
/// [`Error::StaleSnapshot`] in a REPEATABLE READ or SERIALIZABLE transaction, unless it already
/// holds the key. [`Error::InFailedTransaction`] (25P02) after a statement that failed.
/// [`Error::InTransaction`] for a request with an isolation level or `refuse_nested`. Otherwise
/// those of [`begin`].
///
/// An error rolls the savepoint back: no lock of this call is held, and the transaction can
/// continue. With [`Wait::Never`] and one key there is no savepoint, so the transaction has failed
/// after [`Error::Database`].
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{LockKey, xact};
/// use diesel::QueryResult;
/// use diesel_async::{AsyncConnection, AsyncPgConnection};
///
/// #[derive(LockKey)]
/// #[lock_key("account:<id>")]
/// struct AccountLock {
///     id: i64,
/// }
///
/// async fn pay(
///     conn: &mut AsyncPgConnection,
///     invoice: i64,
/// ) -> Result<(), advisory_runtime::Error> {
///     conn.transaction(async |conn| {
///         let id = account_of(conn, invoice).await?;
///         xact::lock(conn, AccountLock { id }).await?;
///         let balance = balance(conn, id).await?; // read under the lock
///         // …
/// #       let _ = balance;
///         Ok(())
///     })
///     .await
/// }
/// # async fn account_of(_: &mut AsyncPgConnection, _: i64) -> QueryResult<i64> { Ok(1) }
/// # async fn balance(_: &mut AsyncPgConnection, _: i64) -> QueryResult<i64> { Ok(1) }
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn lock<C: Connection>(
    conn: &mut C,
    request: impl Into<Request>,
) -> impl Future<Output = Result<LockInfo, Error>> {
    lock::lock(conn, C::pg, request.into().with_origin())
}

/// Takes the advisory lock on a key in an open transaction if it is free, and returns whether it
/// did.
///
/// It never waits, and ignores the wait of the request. To wait, or for an error that names the
/// lock, use [`lock`]. As there, read the guarded rows again after the call.
///
/// # Locking
///
/// One key takes one query of `pg_try_advisory_xact_lock(key)`: one round trip, and one more when
/// this connection prepares the query, which a blocking connection does each time. Three round
/// trips for several keys, [permits](Request::permits) and [`Request::max_hold`], with a pooler,
/// and above READ COMMITTED: a savepoint is set, so that a miss takes none of the keys.
///
/// Held until the transaction ends, or until a savepoint around the call is rolled back.
///
/// # Errors
///
/// Those of [`lock`], except that a lock held elsewhere is `Ok(false)`.
/// [`Error::NotInTransaction`], [`Error::StaleSnapshot`] and [`Error::InTransaction`] leave the
/// transaction as it was. After [`Error::Database`] the transaction has failed, or its connection
/// is closed. With a pooler that does not track prepared statements and is not recognized, another
/// client's statement can answer: that is such an error, and never counts as the lock. Only debug
/// builds notice that the program ended the transaction by SQL while Diesel still counts it.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{LockKey, xact};
/// use diesel::QueryResult;
/// use diesel_async::{AsyncConnection, AsyncPgConnection};
///
/// #[derive(LockKey)]
/// #[lock_key("shard:<id>")]
/// struct ShardLock {
///     id: i64,
/// }
///
/// /// Works on the first shard that nobody else works on.
/// async fn work_on_one(
///     conn: &mut AsyncPgConnection,
/// ) -> Result<Option<i64>, advisory_runtime::Error> {
///     conn.transaction(async |conn| {
///         for id in shards(conn).await? {
///             if xact::try_lock(conn, ShardLock { id }).await? {
///                 // …
///                 return Ok(Some(id));
///             }
///         }
///         Ok(None)
///     })
///     .await
/// }
/// # async fn shards(_: &mut AsyncPgConnection) -> QueryResult<Vec<i64>> { Ok(vec![1, 2]) }
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn try_lock<C: Connection>(
    conn: &mut C,
    request: impl Into<Request>,
) -> impl Future<Output = Result<bool, Error>> {
    lock::try_lock(conn, C::pg, request.into().with_origin())
}
