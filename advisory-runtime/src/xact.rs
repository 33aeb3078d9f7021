//! Transaction-level locks: begin, finish.
//!
//! What `#[advisory_lock(…, scope = "xact")]` expands to, as functions: [`begin`] opens a transaction that holds the lock,
//! the caller does its work on [`Held::conn`], [`finish`] commits or rolls back. Two calls and not a closure, because a
//! helper that takes an async closure costs every generic caller's future its `Send`.

use crate::error::LockName;
pub use crate::guard::Held;
use crate::guard::{depth, enter, is_broken, return_to, status};
use crate::{Connection, Error, Key, LockKey, error, sql};
use diesel::result::Error as DieselError;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What [`begin`] returns: the lock on a connection that the caller has at hand.
pub type HeldOn<'c, C> = Held<'c, C, fn(&mut C) -> &mut AsyncPgConnection>;

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
/// [`Error::BrokenConnection`], [`Error::Database`] for every other answer. After an error no lock is held, and the
/// transaction around the call, if any, goes on.
///
/// # Cancel safety
///
/// Not cancel safe: dropping the future, or what it returned, cancels the statement that is running, rolls back and closes
/// the connection. No lock, no waiter and no open transaction is left. A pool discards the connection; one of your own has
/// to be opened anew, also when the call was nested in a transaction, which is rolled back with it.
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
pub async fn begin<C: Connection>(conn: &mut C, key: impl LockKey) -> Result<HeldOn<'_, C>, Error> {
    let place: fn(&mut C) -> &mut AsyncPgConnection = C::pg;
    begin_at(conn, place, key.pattern(), &mut [key.key()]).await
}

/// [`begin`] for a connection that is part of something else, and several keys.
#[doc(hidden)]
pub async fn begin_at<'o, O: ?Sized, P: Fn(&mut O) -> &mut AsyncPgConnection>(
    owner: &'o mut O,
    place: P,
    lock: &'static str,
    keys: &mut [Key],
) -> Result<Held<'o, O, P>, Error> {
    keys.sort_unstable();
    let name = LockName::new(lock, keys);
    let mut held = Held::new(owner, place, name);
    let conn = held.pg();
    let outer = match depth(conn) {
        Ok(Some(outer)) => Some(outer),
        Ok(None) if !is_broken(conn) => None,
        _ => {
            return Err(Error::BrokenConnection { lock: name.text() });
        }
    };
    held.outer = outer;
    let message = match outer {
        None => {
            held.token = next_token();
            sql::begin(held.token, keys)
        }
        Some(outer) => sql::begin_nested(outer, keys),
    };
    held.unfinished = true;
    let sent = Instant::now();
    match held.pg().batch_execute(&message).await {
        Ok(()) => {
            enter(held.pg()).map_err(Error::Database)?;
            Ok(held)
        }
        Err(error) => {
            let waited = sent.elapsed();
            let conn = held.pg();
            leave_refused_begin(conn, outer, &error).await;
            let error = if error::has_marker(&error, sql::FOREIGN) {
                Error::ForeignTransaction { lock: name.text() }
            } else if error::has_marker(&error, sql::STALE) {
                Error::StaleSnapshot { lock: name.text() }
            } else if error::is_deadlock(&error) {
                Error::Deadlock {
                    lock: name.text(),
                    source: error,
                }
            } else if error::is_interrupted(&error)
                && lock_timeout(conn)
                    .await
                    .is_some_and(|timeout| waited.as_millis() >= timeout)
            {
                Error::TimedOut {
                    lock: name.text(),
                    waited,
                    source: error,
                }
            } else {
                Error::Database(error)
            };
            held.unfinished = false;
            Err(error)
        }
    }
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
pub async fn finish<T, E, O, P>(held: Held<'_, O, P>, result: Result<T, E>) -> Result<T, E>
where
    E: From<Error>,
    O: ?Sized,
    P: Fn(&mut O) -> &mut AsyncPgConnection,
{
    finish_with(held, result, E::from).await
}

/// [`finish`] with a conversion of the caller's.
#[doc(hidden)]
pub async fn finish_with<T, E, O, P>(
    mut held: Held<'_, O, P>,
    result: Result<T, E>,
    convert: impl FnOnce(Error) -> E,
) -> Result<T, E>
where
    O: ?Sized,
    P: Fn(&mut O) -> &mut AsyncPgConnection,
{
    let (outer, token, lock) = (held.outer, held.token, held.lock);
    // Another depth than begin left means that the body has begun or ended transactions through Diesel and not in pairs; a
    // broken connection, that a future inside it was dropped.
    match (depth(held.pg()), result) {
        (Ok(now), result) if now == Some(inside(outer)) => {
            let conn = held.pg();
            let result = match (result, outer) {
                (Ok(value), None) => commit(conn, token, lock)
                    .await
                    .map(|()| value)
                    .map_err(convert),
                (Ok(value), Some(outer)) => release(conn, outer, lock)
                    .await
                    .map(|()| value)
                    .map_err(convert),
                (Err(error), outer) => {
                    roll_back(conn, outer).await;
                    Err(error)
                }
            };
            held.unfinished = false;
            result
        }
        (now, result) => {
            held.abandon();
            result.and_then(|_| {
                let lock = lock.text();
                Err(convert(match now {
                    Ok(_) => Error::TransactionEnded { lock },
                    Err(source) => Error::RolledBack { lock, source },
                }))
            })
        }
    }
}

async fn commit(conn: &mut AsyncPgConnection, token: u64, lock: LockName) -> Result<(), Error> {
    let Err(error) = conn.batch_execute(&sql::commit(token)).await else {
        return_to(conn, None);
        return Ok(());
    };
    // What happened is read off the session's state, because Diesel hides the SQLSTATE and messages are translated.
    let ended = error::has_marker(&error, sql::ENDED);
    let aborted = ended || conn.batch_execute(sql::PROBE).await.is_err();
    let alive = !aborted || conn.batch_execute(sql::ROLLBACK).await.is_ok();
    if alive {
        return_to(conn, None);
    } else {
        status(conn).set_in_error();
    }
    let lock = lock.text();
    Err(if ended {
        Error::TransactionEnded { lock }
    } else if !alive {
        Error::CommitUnknown {
            lock,
            source: error,
        }
    } else if aborted {
        Error::RolledBack {
            lock,
            source: error,
        }
    } else {
        Error::Database(error)
    })
}

async fn release(
    conn: &mut AsyncPgConnection,
    outer: NonZeroU32,
    lock: LockName,
) -> Result<(), Error> {
    let Err(error) = conn.batch_execute(&sql::release_savepoint(outer)).await else {
        return_to(conn, Some(outer));
        return Ok(());
    };
    if error::is_connection_lost(&error) {
        status(conn).set_in_error();
        return Err(Error::Database(error));
    }
    let lock = lock.text();
    if conn
        .batch_execute(&sql::rollback_to_savepoint(outer))
        .await
        .is_ok()
    {
        return_to(conn, Some(outer));
        Err(Error::RolledBack {
            lock,
            source: error,
        })
    } else {
        // The savepoint is gone, and with it the transaction that the caller believes to be in.
        status(conn).set_in_error();
        Err(Error::TransactionEnded { lock })
    }
}

/// Undoes the body; when the server does not answer, marks the connection as broken and lets the body's own error stand.
async fn roll_back(conn: &mut AsyncPgConnection, outer: Option<NonZeroU32>) {
    let undone = match outer {
        None => conn.batch_execute(sql::ROLLBACK).await,
        Some(outer) => conn.batch_execute(&sql::rollback_to_savepoint(outer)).await,
    };
    match undone {
        Ok(()) => return_to(conn, outer),
        Err(_) => status(conn).set_in_error(),
    }
}

/// A refused begin leaves the session idle; inside a transaction the savepoint is undone, so that the outer one goes on.
async fn leave_refused_begin(
    conn: &mut AsyncPgConnection,
    outer: Option<NonZeroU32>,
    error: &DieselError,
) {
    if error::is_connection_lost(error) {
        status(conn).set_in_error();
    } else if let Some(outer) = outer
        && conn
            .batch_execute(&sql::rollback_to_savepoint(outer))
            .await
            .is_err()
    {
        status(conn).set_in_error();
    }
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

/// The depth inside a transaction or savepoint opened at `outer`.
fn inside(outer: Option<NonZeroU32>) -> NonZeroU32 {
    outer.map_or(NonZeroU32::MIN, |outer| outer.saturating_add(1))
}

/// A number that no other transaction of this session can have.
fn next_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
