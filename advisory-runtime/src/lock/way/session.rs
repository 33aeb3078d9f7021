//! Session-level locks: the SQL that takes and releases them, and how a refusal is read.

use super::acquire_sql::{AcquireSql, TryQuery};
use super::answer_tag::AnswerTag;
use super::client_check::CLIENT_CHECK;
use super::message::{IsPooled, KEYS_PER_STATEMENT, LockTimeout, Message, SettingScope};
use super::refusal::{self, SessionState};
use crate::driver::{CloseOnDrop, Driver};
use crate::error::{Marker, has_only_message, is_connection_lost};
use crate::lock::call::{Call, Phase};
use crate::request::Scope;
use crate::sql::own_locks::{push_count, push_is_held};
use crate::sql::unlock::Unlock;
use crate::sql::{self, Arguments, lock_function, put, unlock_function};
use crate::{Error, Key, Mode, Request, Wait, debug, pooler};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The place of an acquisition: inside the transaction that a test began, or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Around {
    Nothing,
    TestTransaction,
}

const fn around(call: &Call) -> Around {
    match call.outer {
        None => Around::Nothing,
        Some(_) => Around::TestTransaction,
    }
}

/// Takes session-level locks, in one message.
///
/// One key is one statement. Several keys are first taken for the message's own transaction, which
/// can wait, and then for the session: if the wait is refused, none is left. Inside a test's
/// transaction a savepoint takes the place of that transaction; rolling back to it releases no
/// session-level lock. It also undoes settings: there, [`bound_message`] follows in a message of
/// its own.
///
/// It fails with [`Marker::PooledSession`], and takes nothing, if `process` is not the backend.
fn acquire_sql(request: &Request, around: Around, process: Option<i32>) -> AcquireSql {
    if request.budget() == Wait::Never {
        let is_test = around == Around::TestTransaction;
        return AcquireSql {
            message: if is_test { SAVEPOINT } else { "" }.into(),
            try_query: Some(TryQuery::Session { process }),
        };
    }
    let mut message = Message::new(request);
    if around == Around::TestTransaction {
        message.statement(SAVEPOINT);
    }
    if request.max_hold.is_some() {
        message.select_client_check(SettingScope::Session);
    }
    let is_pooled = process.map(IsPooled::Backend);
    if let [_] = *request.keys {
        message.select_locks(request, Scope::Session, LockTimeout::Leave, is_pooled);
    } else {
        message.select_locks(request, Scope::Xact, LockTimeout::Leave, is_pooled);
        let lock = lock_function(Scope::Session, request.mode);
        message.call_each(request, lock, None);
    }
    if around == Around::TestTransaction {
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
    match around(call) {
        Around::Nothing => conn.execute(check).await,
        Around::TestTransaction => {
            let message = [SAVEPOINT, check, UNDO_SAVEPOINT].join(";");
            let checked = conn.execute(&message).await;
            if checked.is_err() {
                drop(conn.execute(UNDO_SAVEPOINT).await);
            }
            checked
        }
    }
}

/// Bounds the holder, after a try, or inside a test's transaction.
fn bound_message(max_hold: Duration) -> String {
    let mut sql = Message::empty();
    sql.select_client_check(SettingScope::Session);
    push_timeouts(&mut sql, max_hold);
    sql.into_text()
}

/// The timeouts that bound the holder of a session-level lock after its client has stopped.
const TIMEOUTS: [&str; 3] = [
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
];

fn push_timeouts(message: &mut Message, max_hold: Duration) {
    for setting in TIMEOUTS {
        message.push_timeout(setting, max_hold, SettingScope::Session);
    }
}

/// A query that returns the settings that `max_hold` changes as SQL that restores them, after a
/// tag: another client's answer must not be executed.
fn saved_timeouts(tag: &AnswerTag) -> String {
    let mut sql = format!(
        "SELECT pg_catalog.concat('{tag}',pg_catalog.string_agg(\
         pg_catalog.format('SELECT pg_catalog.set_config(%L,%L,false)',name,setting),';')) \
         FROM pg_catalog.pg_settings WHERE false",
    );
    for setting in TIMEOUTS.into_iter().chain([CLIENT_CHECK]) {
        put!(sql, " OR name OPERATOR(pg_catalog.=) '{setting}'");
    }
    sql
}

/// Releases a key after a wait that timed out, if the session holds it: the server can grant a
/// session-level lock and still report the timeout.
fn release_if_held(key: Key, mode: Mode) -> String {
    let mut sql = String::from("SELECT CASE WHEN ");
    push_is_held(&mut sql, key, mode);
    put!(
        sql,
        " THEN {}({}) END",
        unlock_function(mode),
        Arguments(key)
    );
    sql
}

/// Fails if a refused acquisition can have left session-level locks.
///
/// They are taken, and handed over, in statements of [`KEYS_PER_STATEMENT`] keys, each of which
/// takes or releases all of its keys. So if the session does not hold all keys of a statement, it
/// holds none of them by this acquisition: the others are the caller's own.
pub(super) fn check_none(keys: &[Key], mode: Mode) -> String {
    let mut sql = String::from("SELECT CAST(CASE WHEN false");
    for keys in keys.chunks(KEYS_PER_STATEMENT) {
        put!(sql, " OR {} OPERATOR(pg_catalog.=) ", keys.len());
        push_count(&mut sql, keys, mode);
    }
    sql.push_str(" THEN 'held' ELSE '1' END AS pg_catalog.int4)");
    sql
}

/// Fails with [`Marker::PooledSession`] if the setting `advisory.pooler` is `transaction`, or if
/// `process` is not the backend.
fn check_pooler(process: Option<i32>) -> String {
    let mut message = Message::empty();
    select_pooler_check(&mut message, process);
    message.into_text()
}

pub(super) fn select_pooler_check(message: &mut Message, process: Option<i32>) {
    let pooled = Marker::PooledSession.text();
    let is_pooled = IsPooled::Setting(process);
    message.select();
    message.column(format_args!(
        "CAST(CASE WHEN {is_pooled} THEN '{pooled}' ELSE '1' END AS pg_catalog.int4)",
    ));
}

pub(super) async fn acquire<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    call.process = pooler::own_process(conn);
    let mut acquired = acquire_once(conn, call).await;
    if let Err(error) = &acquired
        && may_repeat(conn, call, error).await
    {
        acquired = Box::pin(acquire_once(conn, call)).await;
    }
    acquired
}

/// True if a call that was refused because of its pooler can be repeated: the setting
/// `advisory.pooler` says that the pooler is in session mode. Finding out otherwise takes two
/// connections, and a call has one.
pub(super) async fn may_repeat<D: Driver>(conn: &mut D, call: &mut Call, refused: &Error) -> bool {
    if call.process.is_none() || !matches!(refused, Error::PooledSession { .. }) {
        return false;
    }
    // A check inside a test's transaction sets a savepoint.
    let mut conn = CloseOnDrop::new(conn);
    if call.outer.is_none() {
        // Pgpool-II with load balancing lets the session that answers reads fail with the refused
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

async fn acquire_once<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    call.phase = Phase::Open;
    prepare(conn, call).await?;
    let (around, process) = (around(call), call.process);
    match acquire_sql(&call.request, around, process)
        .send(conn, call)
        .await
    {
        Ok(Ok(true)) if call.budget() != Wait::Never => match (around, call.request.max_hold) {
            (Around::TestTransaction, Some(max_hold)) => {
                Box::pin(bound(conn, call, max_hold)).await
            }
            _ => Ok(()),
        },
        Ok(Ok(is_taken)) => Box::pin(after_try(conn, call, is_taken)).await,
        Ok(Err(source)) | Err(source) => Err(Box::pin(refused(conn, call, source)).await),
    }
}

/// Prepares the rare calls. The first one of the process reads the setting `advisory.pooler`, and
/// one with `max_hold` saves the timeouts that it changes.
async fn prepare<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    static IS_CHECKED: AtomicBool = AtomicBool::new(false);
    let is_checked = IS_CHECKED.load(Ordering::Relaxed);
    if !is_checked || call.request.max_hold.is_some() {
        return Box::pin(async {
            if !is_checked {
                let pooled = check_pooler(call.process);
                if let Err(source) = check(conn, call, &pooled).await {
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
        .await;
    }
    Ok(())
}

/// No lock has been asked for yet.
async fn check_refused<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    let state = refusal::probe(conn, &source).await;
    call.phase = Phase::Idle;
    let is_pooled = Marker::of(&source) == Some(Marker::PooledSession)
        || state == SessionState::Alive && pooler::is_pooled(conn, call.process).await;
    if is_pooled {
        let lock = call.lock();
        return Error::PooledSession { lock };
    }
    if state == SessionState::HadFailed {
        return had_failed(conn, call, source).await;
    }
    refusal::database(call, source)
}

/// A transaction around the call had failed before: one that Diesel does not know of, or the
/// test's. It does not tell what the session holds.
async fn had_failed<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    call.close(conn).await;
    let lock = call.lock();
    match around(call) {
        Around::Nothing => Error::ForeignTransaction { lock },
        Around::TestTransaction => Error::InFailedTransaction { lock, source },
    }
}

async fn after_try<D: Driver>(conn: &mut D, call: &mut Call, is_taken: bool) -> Result<(), Error> {
    let undone = match around(call) {
        Around::Nothing => Ok(()),
        Around::TestTransaction => conn.execute(UNDO_SAVEPOINT).await,
    };
    if !is_taken || undone.is_err() {
        return Err(refusal::missed(conn, call, undone));
    }
    match call.request.max_hold {
        Some(max_hold) => bound(conn, call, max_hold).await,
        None => Ok(()),
    }
}

async fn bound<D: Driver>(conn: &mut D, call: &mut Call, max_hold: Duration) -> Result<(), Error> {
    let bounded = conn.execute(&bound_message(max_hold)).await;
    if let Err(source) = bounded {
        call.close(conn).await;
        return Err(Error::Database(source));
    }
    Ok(())
}

/// The connection stays usable after a refused wait that is known to have left no lock. Any other
/// error may have come after the keys were taken, and closes it.
async fn refused<D: Driver>(conn: &mut D, call: &mut Call, source: DieselError) -> Error {
    let is_test = around(call) == Around::TestTransaction;
    let undone = if is_test && !is_connection_lost(&source) {
        conn.execute(UNDO_SAVEPOINT).await
    } else {
        Ok(())
    };
    match refusal::probe(conn, &source).await {
        SessionState::Lost => {
            call.phase = Phase::Idle;
            return Error::Database(source);
        }
        SessionState::HadFailed => return had_failed(conn, call, source).await,
        // The error has failed a transaction around the call: one that Diesel does not know of, or
        // the test's.
        SessionState::Aborted => {
            call.close(conn).await;
            let lock = call.lock();
            return if is_test {
                refusal::database(call, source)
            } else {
                Error::ForeignTransaction { lock }
            };
        }
        SessionState::Alive => {}
    }
    let is_pooled = Marker::of(&source) == Some(Marker::PooledSession)
        || call.budget() == Wait::Never && pooler::is_pooled(conn, call.process).await;
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

/// Returns whether the session is known to hold none of the keys by this acquisition. A single key,
/// which can have been granted all the same, is released.
async fn holds_none<D: Driver>(conn: &mut D, call: &Call) -> bool {
    let message = match *call.request.keys {
        [key] => release_if_held(key, call.request.mode),
        ref keys => check_none(keys, call.request.mode),
    };
    conn.execute(&message).await.is_ok()
}

pub(super) async fn release<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let outer = call.outer;
    let mut released = debug::check_no_transaction(conn, outer).await;
    if released.is_ok() {
        released = match unlock_query(call) {
            Some(query) => release_prepared(conn, call, query).await,
            None => conn.execute(&call.release_message()).await,
        };
    }
    match released {
        Ok(()) => Ok(()),
        Err(source) => Box::pin(release_refused(conn, call, source)).await,
    }
}

/// The query that releases one key, on a backend that was compared when it took the lock: elsewhere
/// a prepared statement can be another client's.
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

/// Releases one key by the query, and by the message if the query has not released it: the
/// message's error says why. A prepared statement is gone after `DISCARD ALL` and `DEALLOCATE`.
async fn release_prepared<D: Driver>(conn: &mut D, call: &Call, query: Unlock) -> QueryResult<()> {
    match conn.unlock(query).await {
        Ok(1) => Ok(()),
        unlocked => Box::pin(release_again(conn, call, unlocked.err())).await,
    }
}

async fn release_again<D: Driver>(
    conn: &mut D,
    call: &Call,
    source: Option<DieselError>,
) -> QueryResult<()> {
    match source {
        Some(source) if !has_only_message(&source) => Err(source),
        source => match (conn.execute(&call.release_message()).await, source) {
            (Err(again), Some(source)) if Marker::of(&again) != Some(Marker::LockLost) => {
                Err(source)
            }
            (released, _) => released,
        },
    }
}

async fn release_refused<D: Driver>(
    conn: &mut D,
    call: &mut Call,
    source: DieselError,
) -> Result<(), Error> {
    let message = &call.release_message();
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
        SessionState::Aborted
    } else {
        refusal::probe(conn, &source).await
    };
    match state {
        SessionState::Lost => {}
        // The release itself was interrupted, by a cancel request or a timeout. If that came a
        // moment after the locks were released, the second release does not find them, and whether
        // they were held is not known.
        SessionState::Alive => match conn.execute(message).await {
            Ok(()) => return Ok(()),
            Err(again)
                if Marker::of(&again) == Some(Marker::LockLost) || is_connection_lost(&again) => {}
            // The server refuses the release, such as to a role without the right. The locks were
            // held until then, and end with the session.
            Err(_) => {
                call.close(conn).await;
                return Err(Error::Database(source));
            }
        },
        // The body left a transaction open that Diesel does not know of, or the test's transaction
        // has failed. The lock outlives it.
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
