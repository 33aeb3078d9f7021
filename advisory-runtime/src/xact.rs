//! Transaction-level locks: begin, finish.
//!
//! What `#[advisory_lock(…, scope = "xact")]` expands to, as functions: [`begin`] opens a transaction that holds the lock,
//! the caller does its work on [`Held::conn`], [`finish`] commits or rolls back. Two calls and not a closure, because a
//! helper that takes an async closure costs every generic caller's future its `Send`.

use crate::error::LockName;
use crate::finish::{doom, finish_at};
pub use crate::guard::Held;
use crate::guard::{Place, depth, enter, is_broken, status};
use crate::{Connection, Error, Key, LockKey, error, sql};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Opens a transaction that holds the advisory lock on `key`.
///
/// # Locking
///
/// One round trip. Outside a transaction it sends, as one message, `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`, the
/// settings described below, `SELECT pg_advisory_xact_lock(key)` and `BEGIN`: exclusive, held until the transaction ends.
/// Inside a transaction it sends `SAVEPOINT` and the lock: `Ok` keeps it to the end of the outer transaction, `Err` frees it
/// with the savepoint.
///
/// It waits as long as the session's `lock_timeout` allows. For the length of the transaction it sets
/// `client_connection_check_interval` to one second where it is off, on Linux servers, so that the server notices a client
/// that dies while it waits; and `advisory.token`, by which [`finish`] knows the transaction again.
///
/// # Errors
///
/// [`Error::TimedOut`] (55P03), [`Error::Deadlock`] (40P01), [`Error::StaleSnapshot`], [`Error::ForeignTransaction`],
/// [`Error::BrokenConnection`], [`Error::Database`] for every other answer. After an error no lock of this call is held. The
/// transaction around it goes on, unless it had failed or ended before; one that Diesel does not know of can only be rolled
/// back. With several keys `lock_timeout` counts for each.
///
/// # Cancel safety
///
/// Not cancel safe: dropping the future, or what it returned, cancels the statement that is running, rolls back and closes
/// the connection. No lock, no waiter and no open transaction is left. A pool discards the connection; one of your own has
/// to be opened anew, also when the call was nested in a transaction, which is rolled back with it. Where the cancel request
/// does not arrive, as when the connection requires TLS, a statement that waits goes on until the connection is dropped.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, xact};
/// use diesel_async::AsyncPgConnection;
///
/// # async fn f(conn: &mut AsyncPgConnection) -> Result<(), Error> {
/// let mut held = xact::begin(conn, 42).await?;
/// let result: Result<(), Error> = work(held.conn()).await;
/// xact::finish(held, result).await
/// # }
/// # async fn work(_: &mut AsyncPgConnection) -> Result<(), Error> { Ok(()) }
/// ```
pub async fn begin<C: Connection>(conn: &mut C, key: impl LockKey) -> Result<Held<'_, C>, Error> {
    begin_at(conn, C::pg, key.pattern(), &mut [key.key()]).await
}

/// [`begin`] for a connection that is part of something else, and several keys.
#[doc(hidden)]
pub async fn begin_at<'o, O: ?Sized>(
    owner: &'o mut O,
    place: Place<O>,
    lock: &'static str,
    keys: &mut [Key],
) -> Result<Held<'o, O>, Error> {
    keys.sort_unstable();
    let lock = LockName::new(lock, keys);
    let mut held = Held::new(owner, place, lock);
    held.outer = outer_depth(held.pg(), lock)?;
    held.token = next_token();
    let message = match held.outer {
        None => sql::begin(held.token, keys),
        Some(outer) => sql::begin_nested(outer, held.token, keys),
    };
    held.unfinished = true;
    let outer = held.outer;
    let begun = send(held.pg(), &message, outer, lock).await;
    held.unfinished = begun.is_ok();
    begun.map(|()| held)
}

/// The depth of the transaction around the call.
fn outer_depth(conn: &mut AsyncPgConnection, lock: LockName) -> Result<Option<NonZeroU32>, Error> {
    match depth(conn) {
        Ok(Some(outer)) => Ok(Some(outer)),
        Ok(None) if !is_broken(conn) => Ok(None),
        _ => Err(Error::BrokenConnection { lock: lock.text() }),
    }
}

/// Sends begin's message, and tells apart what its refusal means.
async fn send(
    conn: &mut AsyncPgConnection,
    message: &str,
    outer: Option<NonZeroU32>,
    lock: LockName,
) -> Result<(), Error> {
    let sent = Instant::now();
    let Err(source) = conn.batch_execute(message).await else {
        return enter(conn).map_err(Error::Database);
    };
    let waited = sent.elapsed();
    let is_foreign = leave_refused(conn, outer).await;
    let is_over = error::is_interrupted(&source)
        && lock_timeout(conn)
            .await
            .is_some_and(|timeout| waited.as_millis() >= timeout);
    let lock = lock.text();
    Err(if is_foreign {
        Error::ForeignTransaction { lock }
    } else if error::has_marker(&source, sql::STALE) {
        Error::StaleSnapshot { lock }
    } else if error::is_deadlock(&source) {
        Error::Deadlock { lock, source }
    } else if is_over {
        Error::TimedOut {
            lock,
            waited,
            source,
        }
    } else {
        Error::Database(source)
    })
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
/// [`Error::RolledBack`] (25P02), [`Error::TransactionEnded`], [`Error::CommitUnknown`], or [`Error::Database`], such as a
/// deferred constraint.
///
/// # Cancel safety
///
/// Not cancel safe: whether a dropped commit happened is not known. No lock and no open transaction is left, as for
/// [`begin`].
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

/// Leaves a refused begin behind: a session that is idle, an outer transaction that goes on, or a connection that says it is
/// broken. `true`: a transaction is open that Diesel does not know of, and begin's error has doomed it.
async fn leave_refused(conn: &mut AsyncPgConnection, outer: Option<NonZeroU32>) -> bool {
    if let Some(outer) = outer
        && conn
            .batch_execute(&sql::rollback_to_savepoint(outer))
            .await
            .is_ok()
    {
        return false;
    }
    match (conn.batch_execute(sql::PROBE).await, outer) {
        (Err(error), _) if error::is_connection_lost(&error) => status(conn).set_in_error(),
        // There is no outer transaction any more, and the caller goes on as if there were.
        (Ok(()), Some(_)) => doom(conn).await,
        // The outer transaction had failed before, so there was no savepoint; Diesel's own ROLLBACK still ends it.
        (Err(_), Some(_)) | (Ok(()), None) => {}
        (Err(_), None) => return true,
    }
    false
}

/// The session's `lock_timeout` in milliseconds; `None` when it is off.
async fn lock_timeout(conn: &mut AsyncPgConnection) -> Option<u128> {
    let setting: String = diesel::dsl::sql::<diesel::sql_types::Text>(sql::LOCK_TIMEOUT)
        .get_result(conn)
        .await
        .ok()?;
    setting
        .parse()
        .ok()
        .filter(|milliseconds| *milliseconds > 0)
}

/// A number that no other transaction of this session can have.
fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
