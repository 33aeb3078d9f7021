//! Session-level locks.

use super::held::{push_count, push_is_held};
use super::message::{
    Arguments, CLIENT_CHECK, IsBackend, KEYS_PER_STATEMENT, Lasts, LockTimeout, Message, Scope,
    lock_function, unlock_function,
};
use super::{Acquisition, Question};
use crate::error::Marker;
use crate::{Key, Mode, Request, Wait};
use std::time::Duration;

/// Whether an acquisition is inside the transaction that a test began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Around {
    Nothing,
    TestTransaction,
}

/// Takes session-level locks, in one message.
///
/// One key is one statement. Several keys are first taken for the message's own transaction, which can wait, and then for the
/// session: if the wait is refused, none is left. Inside a test's transaction a savepoint takes the place of that transaction; rolling
/// back to it releases no session-level lock. It also undoes settings: there, [`bound`] follows in a message of its own.
///
/// It fails with [`Marker::PooledSession`], and takes nothing, if `process` is not the backend.
pub(crate) fn acquire(request: &Request, around: Around, process: Option<i32>) -> Acquisition {
    if request.budget() == Wait::Never {
        let is_test = around == Around::TestTransaction;
        return Acquisition {
            message: if is_test { SAVEPOINT } else { "" }.into(),
            question: Some(Question {
                sql: Message::question(request, Scope::Session, process),
                undo: None,
            }),
        };
    }
    let mut message = Message::new(request);
    if around == Around::TestTransaction {
        message.statement(SAVEPOINT);
    }
    if request.max_hold.is_some() {
        message.select_client_check(Lasts::Session);
    }
    if let [_] = *request.keys {
        message.select_locks(request, Scope::Session, LockTimeout::Leave, process);
    } else {
        message.select_locks(request, Scope::Xact, LockTimeout::Leave, process);
        let lock = lock_function(Scope::Session, request.mode);
        message.select_each(request, lock, None);
    }
    if around == Around::TestTransaction {
        message.statement(UNDO_SAVEPOINT);
    } else if let Some(max_hold) = request.max_hold {
        push_timeouts(&mut message, max_hold);
    }
    message.finish().into()
}

/// Precedes an acquisition inside a test's transaction.
const SAVEPOINT: &str = "SAVEPOINT advisory_acquire";

/// Undoes an acquisition inside a test's transaction, except for the session's locks.
pub(crate) const UNDO_SAVEPOINT: &str =
    "ROLLBACK TO SAVEPOINT advisory_acquire;RELEASE SAVEPOINT advisory_acquire";

/// Bounds the holder, after a try, or inside a test's transaction.
pub(crate) fn bound(max_hold: Duration) -> String {
    let mut sql = Message::empty();
    sql.select_client_check(Lasts::Session);
    push_timeouts(&mut sql, max_hold);
    sql.finish()
}

/// The timeouts that bound the holder of a session-level lock whose client has stopped.
const TIMEOUTS: [&str; 3] = [
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
];

fn push_timeouts(message: &mut Message, max_hold: Duration) {
    for setting in TIMEOUTS {
        message.push_timeout(setting, max_hold, Lasts::Session);
    }
}

/// A query that returns the settings that `max_hold` changes as SQL that restores them.
pub(crate) fn saved_timeouts() -> String {
    let mut sql = String::from(
        "SELECT pg_catalog.string_agg(pg_catalog.format('SELECT pg_catalog.set_config(%L,%L,false)',name,setting),';') \
         FROM pg_catalog.pg_settings WHERE false",
    );
    for setting in TIMEOUTS.into_iter().chain([CLIENT_CHECK]) {
        put!(sql, " OR name OPERATOR(pg_catalog.=) '{setting}'");
    }
    sql
}

/// Releases session-level locks, and fails with [`Marker::LockLost`] if one of them was no longer held. Each is released before the
/// answers are compared. If `process` is not the backend, it fails and releases none: they would be another client's.
pub(crate) fn release(keys: &[Key], mode: Mode, process: Option<i32>) -> String {
    let unlock = unlock_function(mode);
    let mut sql = String::with_capacity(192);
    sql.push_str("SELECT CAST(CASE WHEN ");
    if let Some(process) = process {
        put!(sql, "{} AND ", IsBackend(process));
    }
    if let [key] = *keys {
        put!(sql, "{unlock}({})", Arguments(key));
    } else {
        // A list and not a sum, which would be an expression as deep as there are keys: the server's stack has room for some
        // thousand.
        sql.push_str("true OPERATOR(pg_catalog.=) ALL(ARRAY[");
        for (index, key) in keys.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            put!(sql, "{comma}{unlock}({})", Arguments(*key));
        }
        sql.push_str("])");
    }
    put!(
        sql,
        " THEN '1' ELSE '{}' END AS pg_catalog.int4)",
        Marker::LockLost.text()
    );
    sql
}

/// Releases a key after a wait that timed out, if the session holds it: the server can grant a session-level lock and still report
/// the timeout.
pub(crate) fn release_if_held(key: Key, mode: Mode) -> String {
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
/// They are taken, and handed over, in statements of [`KEYS_PER_STATEMENT`] keys, each of which takes or releases all of its keys. So if
/// the session does not hold all keys of a statement, it holds none of them by this acquisition: the others are the caller's own.
pub(crate) fn check_none(keys: &[Key], mode: Mode) -> String {
    let mut sql = String::from("SELECT CAST(CASE WHEN false");
    for keys in keys.chunks(KEYS_PER_STATEMENT) {
        put!(sql, " OR {} OPERATOR(pg_catalog.=) ", keys.len());
        push_count(&mut sql, keys, mode);
    }
    sql.push_str(" THEN 'held' ELSE '1' END AS pg_catalog.int4)");
    sql
}

/// Fails with [`Marker::LockLost`] unless the session holds every key.
pub(crate) fn check(keys: &[Key], mode: Mode) -> String {
    let count = keys.len();
    let mut sql = format!("SELECT CAST(CASE WHEN {count} OPERATOR(pg_catalog.=) ");
    push_count(&mut sql, keys, mode);
    let lost = Marker::LockLost.text();
    put!(sql, " THEN '1' ELSE '{lost}' END AS pg_catalog.int4)");
    sql
}

/// Fails with [`Marker::LockLost`] unless the session holds one of the permits. For a permit that was asked for
/// [by text](super::Question::by_text), where the rows that say which one it is are not read.
pub(crate) fn check_permit(permits: &[Key], mode: Mode) -> String {
    let mut sql = String::from("SELECT CAST(CASE WHEN 0 OPERATOR(pg_catalog.<) ");
    push_count(&mut sql, permits, mode);
    let lost = Marker::LockLost.text();
    put!(sql, " THEN '1' ELSE '{lost}' END AS pg_catalog.int4)");
    sql
}

/// Fails with [`Marker::PooledSession`] if the setting `advisory.pooler` is `transaction`, or if `process` is not the backend.
pub(crate) fn check_pooler(process: Option<i32>) -> String {
    let mut message = Message::empty();
    select_pooler_check(&mut message, process);
    message.finish()
}

/// Fails with [`Marker::PooledSession`] unless the setting `advisory.pooler` is `session`.
pub(crate) fn check_session_mode() -> String {
    format!(
        "SELECT CAST(CASE WHEN COALESCE(pg_catalog.current_setting('advisory.pooler',true),'') OPERATOR(pg_catalog.=) 'session' \
         THEN '1' ELSE '{}' END AS pg_catalog.int4)",
        Marker::PooledSession.text()
    )
}

pub(super) fn select_pooler_check(message: &mut Message, process: Option<i32>) {
    let pooled = Marker::PooledSession.text();
    let is_other = process.map_or_else(String::new, |process| {
        format!(" OR NOT {}", IsBackend(process))
    });
    message.select();
    message.column(format_args!(
        "CAST(CASE WHEN COALESCE(pg_catalog.current_setting('advisory.pooler',true),'') OPERATOR(pg_catalog.=) 'transaction'\
         {is_other} THEN '{pooled}' ELSE '1' END AS pg_catalog.int4)",
    ));
}
