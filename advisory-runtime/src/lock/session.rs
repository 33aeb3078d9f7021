//! Acquires and releases session-level locks.

use super::guard::{Held, Phase};
use super::refusal;
use super::verify;
use crate::driver::Driver;
use crate::error::{Marker, is_connection_lost};
use crate::sql::session::{self, Around};
use crate::{Error, Key, Request, Wait, debug, sql};
use diesel::result::Error as DieselError;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) async fn acquire<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    held.phase = Phase::Open;
    prepare(held, request).await?;
    let around = held.around();
    match held.send(session::acquire(request, around)).await {
        Ok(Ok(true)) if held.budget != Wait::Never => Ok(()),
        Ok(Ok(is_taken)) => Box::pin(finish_try(held, is_taken)).await,
        Ok(Err(source)) | Err(source) => Err(Box::pin(refused(held, source)).await),
    }
}

/// Prepares the rare calls. The first one of the process reads the setting `advisory.pooler`, a call on a pooler's connection checks
/// that its session is its own, and one with `max_hold` saves the timeouts that it changes.
async fn prepare<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
) -> Result<(), Error> {
    static IS_CHECKED: AtomicBool = AtomicBool::new(false);
    let checked = verify::check_pooler(held.driver()).await;
    checked.map_err(|source| check_refused(held, source))?;
    let is_checked = IS_CHECKED.load(Ordering::Relaxed);
    if !is_checked || request.max_hold.is_some() {
        return Box::pin(async {
            if !is_checked {
                held.driver()
                    .execute(&session::check_pooler())
                    .await
                    .map_err(|source| check_refused(held, source))?;
                IS_CHECKED.store(true, Ordering::Relaxed);
            }
            if request.max_hold.is_some() {
                let saved = held.driver().query_text(&session::saved_timeouts()).await;
                held.restore_timeouts = saved.map_err(|source| check_refused(held, source))?;
            }
            Ok(())
        })
        .await;
    }
    Ok(())
}

fn check_refused<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>, source: DieselError) -> Error {
    held.phase = Phase::Idle;
    if is_connection_lost(&source) {
        held.driver().status().set_in_error();
    }
    match Marker::of(&source) {
        Some(Marker::PooledSession) => Error::PooledSession {
            lock: held.name.text(),
        },
        _ => Error::Database(source),
    }
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
    if let Some(max_hold) = held.max_hold
        && let Err(source) = held.driver().execute(&session::bound(max_hold)).await
    {
        held.close().await;
        return Err(Error::Database(source));
    }
    Ok(())
}

/// A refused wait leaves no lock, except that a single key can have been granted all the same: it is released. Any other error may
/// have come after the keys were taken, and closes the connection.
async fn refused<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>, source: DieselError) -> Error {
    let is_test = held.around() == Around::TestTransaction;
    if is_connection_lost(&source) {
        held.phase = Phase::Idle;
        held.driver().status().set_in_error();
        return Error::Database(source);
    }
    let undone = if is_test {
        held.driver().execute(session::UNDO_SAVEPOINT).await
    } else {
        Ok(())
    };
    let state = refusal::probe(held.driver(), &source).await;
    if state == refusal::State::Aborted {
        // A transaction had already failed: one that Diesel does not know of, or the test's.
        held.phase = Phase::Idle;
        let lock = held.name.text();
        return if is_test {
            Error::Database(source)
        } else {
            Error::ForeignTransaction { lock }
        };
    }
    let error = refusal::classify(held, source).await;
    let is_released = match (&error, &*held.keys) {
        (Error::TimedOut { .. }, &[key]) => release_if_held(held, key).await,
        (Error::TimedOut { .. } | Error::Deadlock { .. }, _) => true,
        _ => false,
    };
    if is_released && undone.is_ok() && state == refusal::State::Alive {
        held.phase = Phase::Idle;
    } else {
        held.close().await;
    }
    error
}

async fn release_if_held<O: ?Sized, D: Driver>(held: &mut Held<'_, O, D>, key: Key) -> bool {
    let message = session::release_if_held(key, held.mode);
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
        Err(source) => Err(Box::pin(release_refused(held, &message, source)).await),
    }
}

async fn release_refused<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    message: &str,
    source: DieselError,
) -> Error {
    let lock = held.name.text();
    if Marker::of(&source) == Some(Marker::LockLost) {
        if let Some(restore) = held.restore_timeouts.take() {
            drop(held.driver().execute(&restore).await);
        }
        let source = Some(source);
        return Error::LockLost { lock, source };
    }
    // The body left a transaction open that Diesel does not know of, or the test's transaction has failed. The lock outlives it.
    let is_foreign = Marker::of(&source) == Some(Marker::ForeignTransaction);
    if !is_connection_lost(&source) && held.driver().execute(sql::ROLLBACK).await.is_ok() {
        let released = held.driver().execute(message).await;
        if held.outer.is_some() {
            held.driver().close(false);
        }
        if released.is_ok() {
            return if is_foreign {
                Error::ForeignTransaction { lock }
            } else {
                Error::RolledBack { lock, source }
            };
        }
    }
    held.close().await;
    let source = Some(source);
    Error::LockLost { lock, source }
}
