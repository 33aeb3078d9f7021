//! Acquires and releases session-level locks.

use super::guard::{Held, Phase};
use super::refusal::{self, State};
use super::verify;
use crate::driver::Driver;
use crate::error::{Marker, is_connection_lost};
use crate::sql::session::{self, Around};
use crate::{Error, Request, Wait, debug, sql};
use diesel::result::Error as DieselError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) async fn acquire<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    held.process = verify::own_process(held.driver());
    let mut acquired = acquire_once(held, request).await;
    if let Err(error) = &acquired
        && verify::may_repeat(held, error).await
    {
        acquired = Box::pin(acquire_once(held, request)).await;
    }
    acquired
}

async fn acquire_once<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    held.phase = Phase::Open;
    prepare(held, request).await?;
    let (around, process) = (held.around(), held.process);
    match held.send(session::acquire(request, around, process)).await {
        Ok(Ok(true)) if held.budget != Wait::Never => match (around, held.max_hold) {
            (Around::TestTransaction, Some(max_hold)) => Box::pin(bound(held, max_hold)).await,
            _ => Ok(()),
        },
        Ok(Ok(is_taken)) => Box::pin(finish_try(held, is_taken)).await,
        Ok(Err(source)) | Err(source) => Err(Box::pin(refused(held, source)).await),
    }
}

/// Prepares the rare calls. The first one of the process reads the setting `advisory.pooler`, and one with `max_hold` saves the timeouts
/// that it changes.
async fn prepare<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    static IS_CHECKED: AtomicBool = AtomicBool::new(false);
    let is_checked = IS_CHECKED.load(Ordering::Relaxed);
    if !is_checked || request.max_hold.is_some() {
        return Box::pin(async {
            if !is_checked {
                let check = session::check_pooler(held.process);
                if let Err(source) = held.driver().execute(&check).await {
                    return Err(check_refused(held, source).await);
                }
                IS_CHECKED.store(true, Ordering::Relaxed);
            }
            if request.max_hold.is_some() {
                match held.driver().query_text(&session::saved_timeouts()).await {
                    Ok(saved) => held.restore_timeouts = saved,
                    Err(source) => return Err(check_refused(held, source).await),
                }
            }
            Ok(())
        })
        .await;
    }
    Ok(())
}

/// No lock has been asked for yet.
async fn check_refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    source: DieselError,
) -> Error {
    let is_alive = refusal::probe(held.driver(), &source).await == State::Alive;
    held.phase = Phase::Idle;
    let is_pooled = Marker::of(&source) == Some(Marker::PooledSession)
        || is_alive && verify::is_pooled(held).await;
    if is_pooled {
        let lock = held.name.text();
        return Error::PooledSession { lock };
    }
    Error::Database(source)
}

async fn finish_try<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    is_taken: bool,
) -> Result<(), Error> {
    let undone = match held.around() {
        Around::Nothing => Ok(()),
        Around::TestTransaction => held.driver().execute(session::UNDO_SAVEPOINT).await,
    };
    if !is_taken || undone.is_err() {
        return Err(refusal::missed(held, undone));
    }
    match held.max_hold {
        Some(max_hold) => bound(held, max_hold).await,
        None => Ok(()),
    }
}

/// Bounds the holder in a message of its own.
async fn bound<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    max_hold: Duration,
) -> Result<(), Error> {
    let bounded = held.driver().execute(&session::bound(max_hold)).await;
    if let Err(source) = bounded {
        held.close().await;
        return Err(Error::Database(source));
    }
    Ok(())
}

/// The connection stays usable after a refused wait that is known to have left no lock. Any other error may have come after the keys
/// were taken, and closes it.
async fn refused<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>, source: DieselError) -> Error {
    let is_test = held.around() == Around::TestTransaction;
    let undone = if is_test && !is_connection_lost(&source) {
        held.driver().execute(session::UNDO_SAVEPOINT).await
    } else {
        Ok(())
    };
    match refusal::probe(held.driver(), &source).await {
        State::Lost => {
            held.phase = Phase::Idle;
            return Error::Database(source);
        }
        // A transaction around the call has failed: one that Diesel does not know of, or the test's. It refuses the question what the
        // session holds.
        State::Aborted => {
            held.close().await;
            let lock = held.name.text();
            return if is_test {
                Error::Database(source)
            } else {
                Error::ForeignTransaction { lock }
            };
        }
        State::Alive => {}
    }
    let is_pooled = Marker::of(&source) == Some(Marker::PooledSession)
        || held.budget == Wait::Never && verify::is_pooled(held).await;
    if is_pooled && undone.is_ok() {
        held.phase = Phase::Idle;
        let lock = held.name.text();
        return Error::PooledSession { lock };
    }
    let error = refusal::classify(held, source).await;
    let may_go_on = matches!(error, Error::TimedOut { .. } | Error::Deadlock { .. });
    if may_go_on && undone.is_ok() && holds_none(held).await {
        held.phase = Phase::Idle;
    } else {
        held.close().await;
    }
    error
}

/// Whether the session is known to hold none of the keys by this acquisition. A single key, which can have been granted all the same,
/// is released.
async fn holds_none<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>) -> bool {
    let message = match *held.keys {
        [key] => session::release_if_held(key, held.mode),
        ref keys => session::check_none(keys, held.mode),
    };
    held.driver().execute(&message).await.is_ok()
}

/// Releases the locks, and checks the answer.
pub(super) async fn release<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>) -> Result<(), Error> {
    let message = held.release_message();
    let outer = held.outer;
    let mut released = debug::check_no_transaction(held.driver(), outer).await;
    if released.is_ok() {
        released = held.driver().execute(&message).await;
    }
    match released {
        Ok(()) => Ok(()),
        Err(source) => Box::pin(release_refused(held, &message, source)).await,
    }
}

async fn release_refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    message: &str,
    source: DieselError,
) -> Result<(), Error> {
    let lock = held.name.text();
    if Marker::of(&source) == Some(Marker::LockLost) {
        if let Some(restore) = held.restore_timeouts.take()
            && held.driver().execute(&restore).await.is_err()
        {
            held.close().await;
        }
        let source = Some(source);
        return Err(Error::LockLost { lock, source });
    }
    let is_foreign = Marker::of(&source) == Some(Marker::ForeignTransaction);
    let state = if is_foreign {
        State::Aborted
    } else {
        refusal::probe(held.driver(), &source).await
    };
    match state {
        State::Lost => {}
        // The release itself was interrupted, by a cancel request or a timeout. If that came a moment after the locks were released,
        // the second release does not find them, and whether they were held is not known.
        State::Alive => {
            if held.driver().execute(message).await.is_ok() {
                return Ok(());
            }
        }
        // The body left a transaction open that Diesel does not know of, or the test's transaction has failed. The lock outlives it.
        State::Aborted => {
            if held.driver().execute(sql::ROLLBACK).await.is_ok() {
                let released = held.driver().execute(message).await;
                if held.outer.is_some() {
                    held.driver().close(false);
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
    held.close().await;
    let source = Some(source);
    Err(Error::LockLost { lock, source })
}
