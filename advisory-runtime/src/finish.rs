//! How a transaction that holds a lock ends, and what it means when it does not end as it should.
//!
//! What happened is read off the session's state, because Diesel hides the SQLSTATE and messages are translated.

use crate::error::{self, LockName};
use crate::guard::{Held, depth, return_to, status};
use crate::{Error, sql};
use diesel::result::Error as DieselError;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use std::num::NonZeroU32;

/// Commits when the body was `Ok`, else rolls back. `Ok` is what the caller asked for; it never fails after a body's error,
/// which is never lost to what happened afterwards.
#[doc(hidden)]
pub async fn finish_at<O: ?Sized>(mut held: Held<'_, O>, is_ok: bool) -> Result<(), Error> {
    let (outer, token, lock) = (held.outer, held.token, held.lock);
    let now = depth(held.pg());
    if matches!(now, Ok(now) if now == Some(inside(outer))) {
        let outcome = settle(held.pg(), outer, token, lock, is_ok).await;
        held.unfinished = false;
        return outcome;
    }
    // The body has begun or ended transactions through Diesel and not in pairs, or a future inside it was dropped. What is
    // open on the server is unknown, so the session is ended, and waited for: the lock is gone when the function returns.
    // Not waited for where the request did not arrive: nothing then ends what runs, while the caller keeps the connection open.
    if let Some(cancelled) = held.abandon()
        && matches!(cancelled.await, Ok(true))
    {
        drop(held.pg().batch_execute(sql::PROBE).await);
    }
    if is_ok {
        Err(unbalanced(now, outer, lock))
    } else {
        Ok(())
    }
}

async fn settle(
    conn: &mut AsyncPgConnection,
    outer: Option<NonZeroU32>,
    token: u64,
    lock: LockName,
    is_ok: bool,
) -> Result<(), Error> {
    match outer {
        _ if !is_ok => {
            roll_back(conn, outer).await;
            Ok(())
        }
        None => commit(conn, token, lock).await,
        Some(outer) => release(conn, outer, token, lock).await,
    }
}

fn unbalanced(
    now: Result<Option<NonZeroU32>, DieselError>,
    outer: Option<NonZeroU32>,
    lock: LockName,
) -> Error {
    let lock = lock.text();
    match now {
        Err(source) => Error::RolledBack { lock, source },
        Ok(now) if now > Some(inside(outer)) => {
            let source = DieselError::BrokenTransactionManager;
            Error::RolledBack { lock, source }
        }
        Ok(_) => Error::TransactionEnded { lock },
    }
}

async fn commit(conn: &mut AsyncPgConnection, token: u64, lock: LockName) -> Result<(), Error> {
    let Err(error) = conn.batch_execute(&sql::commit(token)).await else {
        return_to(conn, None);
        return Ok(());
    };
    let ended = error::has_marker(&error, sql::ENDED);
    let aborted = ended || conn.batch_execute(sql::PROBE).await.is_err();
    let alive = !aborted || conn.batch_execute(sql::ROLLBACK).await.is_ok();
    if alive {
        return_to(conn, None);
    } else {
        status(conn).set_in_error();
    }
    let (lock, source) = (lock.text(), error);
    Err(if ended {
        Error::TransactionEnded { lock }
    } else if !alive {
        Error::CommitUnknown { lock, source }
    } else if aborted {
        Error::RolledBack { lock, source }
    } else {
        Error::Database(source)
    })
}

async fn release(
    conn: &mut AsyncPgConnection,
    outer: NonZeroU32,
    token: u64,
    lock: LockName,
) -> Result<(), Error> {
    let Err(error) = conn
        .batch_execute(&sql::release_savepoint(outer, token))
        .await
    else {
        return_to(conn, Some(outer));
        return Ok(());
    };
    let ended = error::has_marker(&error, sql::ENDED);
    let undone = conn.batch_execute(&sql::rollback_to_savepoint(outer)).await;
    let (lock, source) = (lock.text(), error);
    match undone {
        Ok(()) => {
            return_to(conn, Some(outer));
            Err(if ended {
                Error::TransactionEnded { lock }
            } else {
                Error::RolledBack { lock, source }
            })
        }
        Err(undone) if error::is_connection_lost(&undone) => {
            status(conn).set_in_error();
            Err(Error::Database(source))
        }
        // The savepoint is gone, and with it the transaction that the caller believes to be in.
        Err(_) => {
            doom(conn).await;
            Err(Error::TransactionEnded { lock })
        }
    }
}

/// Undoes the body. When the server cannot, the caller's transaction is not what it was, and nothing more is committed on it;
/// the body's own error stands.
async fn roll_back(conn: &mut AsyncPgConnection, outer: Option<NonZeroU32>) {
    let undone = match outer {
        None => conn.batch_execute(sql::ROLLBACK).await,
        Some(outer) => conn.batch_execute(&sql::rollback_to_savepoint(outer)).await,
    };
    match undone {
        Ok(()) => return_to(conn, outer),
        Err(_) => doom(conn).await,
    }
}

/// Makes the connection refuse whatever its caller still sends: there is no transaction around it any more, so each statement
/// would commit by itself.
pub(crate) async fn doom(conn: &mut AsyncPgConnection) {
    status(conn).set_in_error();
    // Always an error: the last statement is there to fail.
    drop(conn.batch_execute(sql::DOOM).await);
}

/// The depth inside a transaction or savepoint opened at `outer`.
fn inside(outer: Option<NonZeroU32>) -> NonZeroU32 {
    outer.map_or(NonZeroU32::MIN, |outer| outer.saturating_add(1))
}
