//! Acquires and releases session-level locks.

use super::call::{Call, Phase};
use super::refusal::{self, State};
use super::verify;
use crate::driver::Driver;
use crate::error::{Marker, is_connection_lost};
use crate::sql::session::{self, Around};
use crate::{Error, Wait, debug, sql};
use diesel::result::Error as DieselError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) async fn acquire<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    call.process = verify::own_process(conn);
    let mut acquired = acquire_once(conn, call).await;
    if let Err(error) = &acquired
        && verify::may_repeat(conn, call, error).await
    {
        acquired = Box::pin(acquire_once(conn, call)).await;
    }
    acquired
}

async fn acquire_once<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    call.phase = Phase::Open;
    prepare(conn, call).await?;
    let (around, process) = (call.around(), call.process);
    match call
        .send(conn, session::acquire(&call.request, around, process))
        .await
    {
        Ok(Ok(true)) if call.budget() != Wait::Never => match (around, call.request.max_hold) {
            (Around::TestTransaction, Some(max_hold)) => {
                Box::pin(bound(conn, call, max_hold)).await
            }
            _ => Ok(()),
        },
        Ok(Ok(is_taken)) => Box::pin(finish_try(conn, call, is_taken)).await,
        Ok(Err(source)) | Err(source) => Err(Box::pin(refused(conn, call, source)).await),
    }
}

/// Prepares the rare calls. The first one of the process reads the setting `advisory.pooler`, and one with `max_hold` saves the timeouts
/// that it changes.
async fn prepare<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    static IS_CHECKED: AtomicBool = AtomicBool::new(false);
    let is_checked = IS_CHECKED.load(Ordering::Relaxed);
    if !is_checked || call.request.max_hold.is_some() {
        return Box::pin(async {
            if !is_checked {
                let check = session::check_pooler(call.process);
                if let Err(source) = conn.execute(&check).await {
                    return Err(check_refused(conn, call, source).await);
                }
                IS_CHECKED.store(true, Ordering::Relaxed);
            }
            if call.request.max_hold.is_some() {
                match conn.query_text(&session::saved_timeouts()).await {
                    Ok(saved) => call.restore_timeouts = saved,
                    Err(source) => return Err(check_refused(conn, call, source).await),
                }
            }
            Ok(())
        })
        .await;
    }
    Ok(())
}

/// No lock has been asked for yet.
async fn check_refused<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    let is_alive = refusal::probe(conn, &source).await == State::Alive;
    call.phase = Phase::Idle;
    let is_pooled = Marker::of(&source) == Some(Marker::PooledSession)
        || is_alive && verify::is_pooled(conn, call).await;
    if is_pooled {
        let lock = call.lock();
        return Error::PooledSession { lock };
    }
    Error::Database(source)
}

async fn finish_try<D: Driver>(conn: &mut D, call: &mut Call, is_taken: bool) -> Result<(), Error> {
    let undone = match call.around() {
        Around::Nothing => Ok(()),
        Around::TestTransaction => conn.execute(session::UNDO_SAVEPOINT).await,
    };
    if !is_taken || undone.is_err() {
        return Err(refusal::missed(conn, call, undone));
    }
    match call.request.max_hold {
        Some(max_hold) => bound(conn, call, max_hold).await,
        None => Ok(()),
    }
}

/// Bounds the holder in a message of its own.
async fn bound<D: Driver>(conn: &mut D, call: &mut Call, max_hold: Duration) -> Result<(), Error> {
    let bounded = conn.execute(&session::bound(max_hold)).await;
    if let Err(source) = bounded {
        call.close(conn).await;
        return Err(Error::Database(source));
    }
    Ok(())
}

/// The connection stays usable after a refused wait that is known to have left no lock. Any other error may have come after the keys
/// were taken, and closes it.
async fn refused<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    let is_test = call.around() == Around::TestTransaction;
    let undone = if is_test && !is_connection_lost(&source) {
        conn.execute(session::UNDO_SAVEPOINT).await
    } else {
        Ok(())
    };
    match refusal::probe(conn, &source).await {
        State::Lost => {
            call.phase = Phase::Idle;
            return Error::Database(source);
        }
        // A transaction around the call has failed: one that Diesel does not know of, or the test's. It refuses the question what the
        // session holds.
        State::Aborted => {
            call.close(conn).await;
            let lock = call.lock();
            return if is_test {
                Error::Database(source)
            } else {
                Error::ForeignTransaction { lock }
            };
        }
        State::Alive => {}
    }
    let is_pooled = Marker::of(&source) == Some(Marker::PooledSession)
        || call.budget() == Wait::Never && verify::is_pooled(conn, call).await;
    if is_pooled && undone.is_ok() {
        call.phase = Phase::Idle;
        let lock = call.lock();
        return Error::PooledSession { lock };
    }
    let error = refusal::classify(conn, call, source).await;
    let may_go_on = matches!(error, Error::TimedOut { .. } | Error::Deadlock { .. });
    if may_go_on && undone.is_ok() && holds_none(conn, call).await {
        call.phase = Phase::Idle;
    } else {
        call.close(conn).await;
    }
    error
}

/// Whether the session is known to hold none of the keys by this acquisition. A single key, which can have been granted all the same,
/// is released.
async fn holds_none<D: Driver>(conn: &mut D, call: &Call) -> bool {
    let message = match *call.request.keys {
        [key] => session::release_if_held(key, call.request.mode),
        ref keys => session::check_none(keys, call.request.mode),
    };
    conn.execute(&message).await.is_ok()
}

/// Releases the locks, and checks the answer.
pub(super) async fn release<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let message = call.release_message();
    let outer = call.outer;
    let mut released = debug::check_no_transaction(conn, outer).await;
    if released.is_ok() {
        released = conn.execute(&message).await;
    }
    match released {
        Ok(()) => Ok(()),
        Err(source) => Box::pin(release_refused(conn, call, &message, source)).await,
    }
}

async fn release_refused<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    message: &str,
    source: DieselError,
) -> Result<(), Error> {
    let lock = call.lock();
    if Marker::of(&source) == Some(Marker::LockLost) {
        if let Some(restore) = call.restore_timeouts.take()
            && conn.execute(&restore).await.is_err()
        {
            call.close(conn).await;
        }
        let source = Some(source);
        return Err(Error::LockLost { lock, source });
    }
    let is_foreign = Marker::of(&source) == Some(Marker::ForeignTransaction);
    let state = if is_foreign {
        State::Aborted
    } else {
        refusal::probe(conn, &source).await
    };
    match state {
        State::Lost => {}
        // The release itself was interrupted, by a cancel request or a timeout. If that came a moment after the locks were released,
        // the second release does not find them, and whether they were held is not known.
        State::Alive => {
            if conn.execute(message).await.is_ok() {
                return Ok(());
            }
        }
        // The body left a transaction open that Diesel does not know of, or the test's transaction has failed. The lock outlives it.
        State::Aborted => {
            if conn.execute(sql::ROLLBACK).await.is_ok() {
                let released = conn.execute(message).await;
                if call.outer.is_some() {
                    conn.close(false);
                }
                if released.is_ok() {
                    return Err(if is_foreign {
                        Error::ForeignTransaction { lock }
                    } else {
                        Error::RolledBack { lock, source }
                    });
                }
            }
        }
    }
    call.close(conn).await;
    let source = Some(source);
    Err(Error::LockLost { lock, source })
}
