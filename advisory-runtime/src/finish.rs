//! How a locked call ends, and what it means when it does not end as it should.
//!
//! What happened is read off the session's state, because Diesel hides the SQLSTATE and messages are translated.

use crate::error::{self, LockName};
use crate::guard::{Held, Phase, Scope};
use crate::link::{Link, Sent, depth, return_to};
use crate::trail::Outcome;
use crate::{Error, prepared, sql};
use diesel::result::Error as DieselError;
use std::num::NonZeroU32;

/// Commits when the body was `Ok`, else rolls back; releases session-level locks. `Ok` is what the caller asked for; it never
/// fails after a body's error, which is never lost to what happened afterwards.
pub(crate) async fn finish<O: ?Sized, L: Link>(
    mut held: Held<'_, O, L>,
    is_ok: bool,
) -> Result<(), Error> {
    let trail = held.trail.take();
    let ended = finished(held, is_ok).await;
    if let Some(mut trail) = trail {
        trail.ended(match &ended {
            Ok(()) if is_ok => Ok(Outcome::Done),
            Ok(()) => Ok(Outcome::Failed),
            Err(error) => Err(error),
        });
    }
    ended
}

async fn finished<O: ?Sized, L: Link>(mut held: Held<'_, O, L>, is_ok: bool) -> Result<(), Error> {
    let (outer, token, lock) = (held.outer, held.token, held.lock);
    let expected = match held.scope {
        Scope::Xact => Some(inside(outer)),
        Scope::Session => outer,
    };
    let now = depth(held.pg());
    if !matches!(now, Ok(now) if now == expected) {
        // The body has begun or ended transactions through Diesel and not in pairs, or a future inside it was dropped. What is
        // open on the server is unknown, so all of it is undone, and waited for: the lock is gone when the function returns.
        let lost = if now.is_err() { held.pg().lost() } else { None };
        let sent = held.give_up(now.is_err());
        wait_until_gone(held.pg(), sent).await;
        return if is_ok {
            Err(unbalanced(&held, now, expected, lost))
        } else {
            Ok(())
        };
    }
    let is_over = is_ok && held.is_over();
    held.phase = Phase::Finishing;
    let outcome = match held.scope {
        Scope::Session => release(&mut held).await,
        Scope::Xact => {
            let is_bounded = held.max_hold.is_some();
            let commits = if held.is_prepared {
                sql::commit_prepared
            } else {
                sql::commit
            };
            let conn = held.pg();
            match outer {
                _ if !is_ok || is_over => {
                    roll_back(conn, outer, token).await;
                    Ok(())
                }
                None => commit(conn, &commits(token), lock).await,
                Some(outer) => release_savepoint(conn, outer, token, lock, is_bounded).await,
            }
        }
    };
    held.phase = Phase::Idle;
    if let (Scope::Xact, Some(outer), true, false, Ok(())) =
        (held.scope, outer, is_ok, is_over, &outcome)
    {
        held.standing.leave(outer);
    }
    if is_over {
        return Err(hold_exceeded(&held));
    }
    if is_ok { outcome } else { Ok(()) }
}

/// Ends a call whose body was dropped because it held the lock for too long.
#[cfg(feature = "diesel-async")]
pub(crate) async fn exceed<O: ?Sized, L: Link>(mut held: Held<'_, O, L>) -> Error {
    let sent = held.give_up(false);
    wait_until_gone(held.pg(), sent).await;
    let error = hold_exceeded(&held);
    if let Some(mut trail) = held.trail.take() {
        trail.ended(Err(&error));
    }
    error
}

fn hold_exceeded<O: ?Sized, L: Link>(held: &Held<'_, O, L>) -> Error {
    Error::HoldExceeded {
        lock: held.lock.text(),
        max_hold: held.max_hold.unwrap_or_default(),
    }
}

fn unbalanced<O: ?Sized, L: Link>(
    held: &Held<'_, O, L>,
    now: Result<Option<NonZeroU32>, DieselError>,
    expected: Option<NonZeroU32>,
    lost: Option<DieselError>,
) -> Error {
    let lock = held.lock.text();
    match (now, lost) {
        (_, Some(_)) if held.is_over() => hold_exceeded(held),
        // What the body has committed before stays committed.
        (Err(source), lost) if held.scope == Scope::Session => {
            let source = Some(lost.unwrap_or(source));
            Error::LockLost { lock, source }
        }
        (_, Some(source)) if held.outer.is_none() => Error::CommitUnknown { lock, source },
        (_, Some(source)) => Error::Database(source),
        (Err(source), None) => Error::RolledBack { lock, source },
        (Ok(now), None) if now > expected => {
            let source = DieselError::BrokenTransactionManager;
            Error::RolledBack { lock, source }
        }
        (Ok(_), None) => Error::TransactionEnded { lock },
    }
}

async fn commit<L: Link>(conn: &mut L, message: &str, lock: LockName) -> Result<(), Error> {
    let Err(error) = conn.execute(message).await else {
        return_to(conn, None);
        return Ok(());
    };
    let is_without = is_without(conn, &error);
    let mut ended = error::has_marker(&error, sql::ENDED);
    let aborted = ended || conn.execute(sql::PROBE).await.is_err();
    // No error leaves a transaction as it is, so there was none.
    ended |= is_without && !aborted;
    let alive = !aborted || conn.execute(sql::ROLLBACK).await.is_ok();
    if alive {
        return_to(conn, None);
    } else {
        conn.status().set_in_error();
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

async fn release_savepoint<L: Link>(
    conn: &mut L,
    outer: NonZeroU32,
    token: u64,
    lock: LockName,
    is_bounded: bool,
) -> Result<(), Error> {
    let message = sql::release_savepoint(outer, token, is_bounded);
    let Err(error) = conn.execute(&message).await else {
        return_to(conn, Some(outer));
        return Ok(());
    };
    let ended = error::has_marker(&error, sql::ENDED);
    let undone = conn
        .execute(&sql::rollback_to_savepoint(outer, token))
        .await;
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
            conn.status().set_in_error();
            Err(Error::Database(source))
        }
        // The savepoint is gone, and with it the transaction that the caller believes to be in.
        Err(_) => {
            doom(conn).await;
            Err(Error::TransactionEnded { lock })
        }
    }
}

/// Whether the body has taken the statements away; the session is then no longer relied upon.
fn is_without<L: Link>(conn: &mut L, error: &DieselError) -> bool {
    let is_without = error::has_marker(error, sql::PREPARED);
    if is_without && let Some(session) = conn.session() {
        prepared::loses(session);
    }
    is_without
}

/// Releases session-level locks, and reads what the server says to it.
async fn release<O: ?Sized, L: Link>(held: &mut Held<'_, O, L>) -> Result<(), Error> {
    let lock = held.lock.text();
    let (mut sent, mut has_failed) = (None, false);
    if held.is_prepared {
        let message = sql::release_prepared(&held.for_release());
        match held.pg().execute(&message).await {
            Ok(()) => return Ok(()),
            Err(error) if is_without(held.pg(), &error) => has_failed = true,
            Err(error) => sent = Some(error),
        }
    }
    let message = sql::release(&held.for_release(), held.around());
    let error = match sent {
        Some(error) => error,
        None => match held.pg().execute(&message).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        },
    };
    if error::has_marker(&error, sql::LOST) {
        let release = held.for_release();
        if release.is_bounded || release.is_shown {
            let restore = sql::restore(&release);
            drop(held.pg().execute(&restore).await);
        }
        let source = Some(error);
        return Err(Error::LockLost { lock, source });
    }
    // The body has left a transaction open that Diesel does not know of, failed or not. The lock has to outlive it.
    // Had it failed before, the server would have refused the release before it missed the statement.
    let is_foreign = has_failed || error::has_marker(&error, sql::FOREIGN);
    let undone = held.pg().execute(sql::ROLLBACK).await;
    if undone.is_ok() && held.outer.is_none() && held.pg().execute(&message).await.is_ok() {
        return Err(if is_foreign {
            Error::ForeignTransaction { lock }
        } else {
            let source = error;
            Error::RolledBack { lock, source }
        });
    }
    if undone.is_ok() && held.outer.is_some() {
        // The transaction of a test is lost, since a statement of the body has failed; the test gets to know it as without us.
        drop(held.pg().execute(&message).await);
        drop(held.pg().execute(sql::DOOM).await);
        let source = error;
        return Err(Error::RolledBack { lock, source });
    }
    held.phase = Phase::Finishing;
    end_session(held).await;
    let source = Some(error);
    Err(Error::LockLost { lock, source })
}

/// Ends the session and waits until that has happened.
pub(crate) async fn end_session<O: ?Sized, L: Link>(held: &mut Held<'_, O, L>) {
    let sent = held.give_up(true);
    wait_until_gone(held.pg(), sent).await;
}

/// Waits for the end of what [`Held::give_up`] has sent; not where the request did not arrive: nothing then ends what runs,
/// while the caller keeps the connection open.
pub(crate) async fn wait_until_gone<L: Link>(conn: &mut L, sent: Option<Sent>) {
    let is_sent = match sent {
        Some(sent) => sent.await,
        None => true,
    };
    if is_sent {
        drop(conn.execute(sql::PROBE).await);
    }
}

/// Undoes the body. When the server cannot, the caller's transaction is not what it was, and nothing more is committed on it;
/// the body's own error stands.
async fn roll_back<L: Link>(conn: &mut L, outer: Option<NonZeroU32>, token: u64) {
    let undone = match outer {
        None => conn.execute(sql::ROLLBACK).await,
        Some(outer) => {
            conn.execute(&sql::rollback_to_savepoint(outer, token))
                .await
        }
    };
    match undone {
        Ok(()) => return_to(conn, outer),
        Err(_) => doom(conn).await,
    }
}

/// Makes the connection refuse whatever its caller still sends: there is no transaction around it any more, so each statement
/// would commit by itself.
pub(crate) async fn doom<L: Link>(conn: &mut L) {
    conn.status().set_in_error();
    // Always an error: the last statement is there to fail.
    drop(conn.execute(sql::DOOM).await);
}

/// The depth inside a transaction or savepoint opened at `outer`.
pub(crate) fn inside(outer: Option<NonZeroU32>) -> NonZeroU32 {
    outer.map_or(NonZeroU32::MIN, |outer| outer.saturating_add(1))
}
