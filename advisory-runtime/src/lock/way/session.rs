//! Session-level locks: the SQL that takes and releases them, and what a refusal means.

use super::acquire_sql::{AcquireSql, AnswerTag};
use super::client_check::CLIENT_CHECK;
use super::message::{
    KEYS_PER_STATEMENT, LockTimeout, Message, other_backend_sql, pooled_session_sql,
};
use super::refusal::{self, SessionState};
use crate::driver::{CloseOnDrop, Driver};
use crate::error::{Marker, has_only_message, is_connection_lost};
use crate::lock::call::{Call, CallPhase};
use crate::request::Scope;
use crate::sql::own_locks::{held_sql, own_count};
use crate::sql::probe::fail_if;
use crate::sql::unlock::Unlock;
use crate::sql::{self, Arguments, lock_function, put, unlock_function};
use crate::{Error, Key, Mode, Wait, debug, pooler};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// True if the call is inside the transaction that a test began; inside any other it is refused.
const fn is_in_test(call: &Call) -> bool {
    call.outer.is_some()
}

/// Takes session-level locks, in one message.
///
/// One key is one statement. Several keys are first taken for the message's own transaction, which
/// can wait, and then for the session: if the wait is refused, the session holds none of them.
/// Inside a test's transaction a savepoint replaces that transaction. Rolling back to it releases
/// no session-level lock but undoes the settings, so [`bound`] sets them in a message of its own.
///
/// The message fails with [`Marker::PooledSession`], and takes nothing, if `process` is not the
/// backend.
fn session_sql(call: &Call) -> AcquireSql {
    let (request, is_test, process) = (&call.request, is_in_test(call), call.process);
    if request.budget() == Wait::Never {
        return AcquireSql::session_try(if is_test { SAVEPOINT } else { "" });
    }
    let mut message = Message::new(request);
    if is_test {
        message.statement(SAVEPOINT);
    }
    if request.max_hold.is_some() {
        message.select_client_check(Scope::Session);
    }
    let other_backend = process.map(other_backend_sql);
    let fails_if = other_backend.as_deref();
    if let [_] = *request.keys {
        message.select_locks(request, Scope::Session, LockTimeout::Leave, fails_if);
    } else {
        message.select_locks(request, Scope::Xact, LockTimeout::Leave, fails_if);
        let lock = lock_function(Scope::Session, request.mode);
        message.call_each(request, lock, None);
    }
    if is_test {
        message.statement(UNDO_SAVEPOINT);
    } else if let Some(max_hold) = request.max_hold {
        push_timeouts(&mut message, max_hold);
    }
    message.into_text().into()
}

/// Precedes an acquisition inside a test's transaction.
const SAVEPOINT: &str = "SAVEPOINT advisory_acquire";

/// Undoes an acquisition inside a test's transaction, except for the session's locks.
const UNDO_SAVEPOINT: &str =
    "ROLLBACK TO SAVEPOINT advisory_acquire;RELEASE SAVEPOINT advisory_acquire";

/// Sends a check. Its failure does not abort a test's transaction.
async fn check<D: Driver>(conn: &mut D, call: &Call, check: &str) -> QueryResult<()> {
    if !is_in_test(call) {
        return conn.execute(check).await;
    }
    let message = [SAVEPOINT, check, UNDO_SAVEPOINT].join(";");
    let checked = conn.execute(&message).await;
    if checked.is_err() {
        drop(conn.execute(UNDO_SAVEPOINT).await);
    }
    checked
}

/// The timeouts by which the server ends the session of a holder that has stopped.
const TIMEOUTS: [&str; 3] = [
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
];

fn push_timeouts(message: &mut Message, max_hold: Duration) {
    for setting in TIMEOUTS {
        message.push_timeout(setting, max_hold, Scope::Session);
    }
}

/// A query that returns, after a tag, the SQL that restores the settings that `max_hold` changes.
/// Without the tag the SQL could be another client's answer, and must not be executed.
fn saved_timeouts(tag: &AnswerTag) -> String {
    let mut sql = format!(
        "SELECT pg_catalog.concat('{}',pg_catalog.string_agg(\
         pg_catalog.format('SELECT pg_catalog.set_config(%L,%L,false)',name,setting),';')) \
         FROM pg_catalog.pg_settings WHERE false",
        tag.0
    );
    for setting in TIMEOUTS.into_iter().chain([CLIENT_CHECK]) {
        put!(sql, " OR name OPERATOR(pg_catalog.=) '{setting}'");
    }
    sql
}

/// Fails if a refused acquisition can have left session-level locks.
///
/// Each statement takes or releases [`KEYS_PER_STATEMENT`] keys, all or none. If the session does
/// not hold all keys of a statement, this acquisition has left none of them: those that the session
/// does hold are the caller's own.
pub(super) fn check_none(keys: &[Key], mode: Mode) -> String {
    let mut sql = String::from("SELECT CAST(CASE WHEN false");
    for keys in keys.chunks(KEYS_PER_STATEMENT) {
        let held = own_count(keys, mode);
        put!(sql, " OR {} OPERATOR(pg_catalog.=) {held}", keys.len());
    }
    sql.push_str(" THEN 'held' ELSE '1' END AS pg_catalog.int4)");
    sql
}

/// Fails with [`Marker::PooledSession`] if the setting `advisory.pooler` is `transaction`, or if
/// `process` is not the backend.
pub(super) fn check_pooler(process: Option<i32>) -> String {
    fail_if(&pooled_session_sql(process), Marker::PooledSession)
}

/// Returns whether a call that was refused because of a pooler can be repeated: if the setting
/// `advisory.pooler` says that the pooler is in session mode. To find out without the setting takes
/// two connections, and a call has one.
pub(super) async fn may_repeat<D: Driver>(conn: &mut D, call: &mut Call, refused: &Error) -> bool {
    if call.process.is_none() || !matches!(refused, Error::PooledSession { .. }) {
        return false;
    }
    // A check inside a test's transaction sets a savepoint.
    let mut conn = CloseOnDrop::new(conn);
    if !is_in_test(call) {
        // Pgpool-II with load balancing fails the session that answers reads with the refused
        // statement, until a transaction ends.
        drop(conn.execute(sql::ROLLBACK).await);
    }
    let declared = check(&mut *conn, call, &pooler::check_session_mode()).await;
    let is_declared = pooler::remember(declared).is_ok();
    conn.disarm();
    if is_declared {
        call.process = None;
    }
    is_declared
}

pub(super) async fn acquire<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    call.phase = CallPhase::Open;
    prepare_session(conn, call).await?;
    match session_sql(call).send(conn, call).await {
        // The message has set the timeouts, unless it was undone.
        Ok(true) if call.request.budget() != Wait::Never && !is_in_test(call) => Ok(()),
        Ok(true) if call.request.budget() != Wait::Never => Box::pin(bound(conn, call)).await,
        Ok(is_taken) => Box::pin(after_try(conn, call, is_taken)).await,
        Err(error) => Err(Box::pin(refused(conn, call, error.into_source())).await),
    }
}

/// Reads the setting `advisory.pooler`, in the first call of the process, and saves the timeouts
/// that a call with `max_hold` changes.
async fn prepare_session<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    static IS_CHECKED: AtomicBool = AtomicBool::new(false);
    let is_checked = IS_CHECKED.load(Ordering::Relaxed);
    if is_checked && call.request.max_hold.is_none() {
        return Ok(());
    }
    Box::pin(async {
        if !is_checked {
            let check_pooler = check_pooler(call.process);
            if let Err(source) = check(conn, call, &check_pooler).await {
                return Err(check_refused(conn, call, source).await);
            }
            IS_CHECKED.store(true, Ordering::Relaxed);
        }
        if call.request.max_hold.is_some() {
            let tag = AnswerTag::new();
            let saved = conn.query_text(&saved_timeouts(&tag)).await;
            match saved.and_then(|saved| tag.read(saved)) {
                Ok(saved) => call.restore_timeouts = Some(saved),
                Err(source) => return Err(check_refused(conn, call, source).await),
            }
        }
        Ok(())
    })
    .await
}

/// The error of a check, which comes before the request for the locks.
async fn check_refused<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    let state = refusal::probe(conn, &source).await;
    call.phase = CallPhase::Idle;
    let is_pooled = Marker::of(&source) == Some(Marker::PooledSession)
        || (state == SessionState::Alive && pooler::has_other_backend(conn, call.process).await);
    if is_pooled {
        let lock = call.lock_name();
        Error::PooledSession { lock }
    } else if state == SessionState::HadFailed {
        had_failed(conn, call, source).await
    } else {
        refusal::database(call, source)
    }
}

/// The error in a transaction that had failed before the call: one that Diesel does not know of, or
/// the test's. Nothing can be asked there, so the connection is closed.
async fn had_failed<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    call.close(conn).await;
    let lock = call.lock_name();
    if is_in_test(call) {
        Error::InFailedTransaction { lock, source }
    } else {
        Error::ForeignTransaction { lock }
    }
}

/// Undoes the savepoint of a try inside a test's transaction.
async fn undo_savepoint<D: Driver>(conn: &mut D, call: &Call) -> QueryResult<()> {
    if is_in_test(call) {
        conn.execute(UNDO_SAVEPOINT).await?;
    }
    Ok(())
}

async fn after_try<D: Driver>(conn: &mut D, call: &mut Call, is_taken: bool) -> Result<(), Error> {
    if let Err(error) = undo_savepoint(conn, call).await {
        call.abandon(conn);
        return Err(Error::Database(error));
    }
    if !is_taken {
        return Err(refusal::missed(call));
    }
    bound(conn, call).await
}

/// Bounds the holder by the timeouts of `max_hold`, after a try or inside a test's transaction.
async fn bound<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let Some(max_hold) = call.request.max_hold else {
        return Ok(());
    };
    let mut message = Message::default();
    message.select_client_check(Scope::Session);
    push_timeouts(&mut message, max_hold);
    if let Err(source) = conn.execute(&message.into_text()).await {
        call.close(conn).await;
        return Err(Error::Database(source));
    }
    Ok(())
}

/// The connection stays usable after a refused wait that is known to have left no lock. Any other
/// error may have come after the keys were taken, and closes it.
async fn refused<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    let lock = call.lock_name();
    let undone = if is_connection_lost(&source) {
        Ok(())
    } else {
        undo_savepoint(conn, call).await
    };
    match refusal::probe(conn, &source).await {
        SessionState::Lost => {
            call.phase = CallPhase::Idle;
            return Error::Database(source);
        }
        SessionState::HadFailed => return had_failed(conn, call, source).await,
        // The error has failed a transaction around the call: one that Diesel does not know of, or
        // the test's.
        SessionState::Aborted => {
            call.close(conn).await;
            return if is_in_test(call) {
                refusal::database(call, source)
            } else {
                Error::ForeignTransaction { lock }
            };
        }
        SessionState::Alive => {}
    }
    let is_pooled = Marker::of(&source) == Some(Marker::PooledSession)
        || (call.request.budget() == Wait::Never
            && pooler::has_other_backend(conn, call.process).await);
    if is_pooled && undone.is_ok() {
        call.phase = CallPhase::Idle;
        return Error::PooledSession { lock };
    }
    let error = refusal::classify(conn, call, source).await;
    let may_go_on = matches!(error, Error::TimedOut { .. } | Error::Deadlock { .. });
    if may_go_on && undone.is_ok() && holds_none(conn, call).await {
        call.phase = CallPhase::Idle;
    } else {
        call.close(conn).await;
    }
    error
}

/// Returns whether this acquisition is known to have left no lock. A single key is released, since
/// the server can grant it and still refuse the statement.
async fn holds_none<D: Driver>(conn: &mut D, call: &Call) -> bool {
    let mode = call.request.mode;
    let message = match *call.request.keys {
        [key] => {
            let (held, unlock) = (held_sql(key, mode), unlock_function(mode));
            let key = Arguments(key);
            format!("SELECT CASE WHEN {held} THEN {unlock}({key}) END")
        }
        ref keys => check_none(keys, mode),
    };
    conn.execute(&message).await.is_ok()
}

pub(super) async fn release<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let mut released = debug::check_no_transaction(conn, call.outer).await;
    if released.is_ok() {
        released = match unlock_query(call) {
            Some(query) => release_prepared(conn, call, query).await,
            None => conn.execute(&call.release_locks_sql()).await,
        };
    }
    match released {
        Ok(()) => Ok(()),
        Err(source) => Box::pin(release_refused(conn, call, source)).await,
    }
}

/// The query that releases one key. Only for a backend that was compared when it took the lock:
/// behind a pooler a prepared statement can be another client's.
fn unlock_query(call: &Call) -> Option<Unlock> {
    let process = call.process?;
    let key = match (call.permit, &*call.request.keys) {
        (Some(permit), _) => permit,
        (None, [key]) => *key,
        _ => return None,
    };
    call.restore_timeouts.is_none().then_some(Unlock {
        key,
        mode: call.request.mode,
        process,
    })
}

/// Releases one key by the query. If the query does not release it, as after a `DISCARD ALL` that
/// removed the prepared statement, the message does, or its error says why it cannot.
async fn release_prepared<D: Driver>(conn: &mut D, call: &Call, query: Unlock) -> QueryResult<()> {
    let source = match conn.unlock(query).await {
        Ok(1) => return Ok(()),
        Ok(_) => None,
        Err(source) if has_only_message(&source) => Some(source),
        Err(source) => return Err(source),
    };
    let message = call.release_locks_sql();
    match (Box::pin(conn.execute(&message)).await, source) {
        (Err(again), Some(source)) if Marker::of(&again) != Some(Marker::LockLost) => Err(source),
        (released, _) => released,
    }
}

async fn release_refused<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    source: DieselError,
) -> Result<(), Error> {
    let message = &call.release_locks_sql();
    let lock = call.lock_name();
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
        SessionState::Aborted
    } else {
        refusal::probe(conn, &source).await
    };
    match state {
        SessionState::Lost => {}
        // A cancel request or a timeout has interrupted the release. If it came a moment after the
        // locks were released, the second release does not find them, and it is not known if they
        // were held.
        SessionState::Alive => match conn.execute(message).await {
            Ok(()) => return Ok(()),
            Err(again)
                if Marker::of(&again) == Some(Marker::LockLost) || is_connection_lost(&again) => {}
            // The server refuses the release, such as to a role without the right. The session
            // still holds the locks, which end with it.
            Err(_) => {
                call.close(conn).await;
                return Err(Error::Database(source));
            }
        },
        // The body has left a transaction open that Diesel does not know of, or the test's
        // transaction has failed. In both cases the session still holds the lock.
        SessionState::Aborted | SessionState::HadFailed => {
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
