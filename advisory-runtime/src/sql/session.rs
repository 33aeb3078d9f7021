//! Session-level locks.

use super::columns::{
    Arguments, LockTimeout, Scope, TryLocks, lock_function, push_is_held, push_timeout,
    select_client_check, select_each, select_locks, unlock_function,
};
use super::message::Message;
use crate::error::Marker;
use crate::{Key, Mode, Request};
use std::time::Duration;

/// Where an acquisition stands: by itself, or inside the transaction that a test began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Around {
    Nothing,
    TestTransaction,
}

/// Takes session-level locks, in one message.
///
/// One key is one statement. Several keys are taken for the message's own transaction first, which can wait, and for the session
/// behind that: where the wait is refused, none is left. Inside a test's transaction a savepoint is that transaction; to roll back to
/// it releases no session-level lock.
pub(crate) fn acquire(request: &Request, around: Around) -> String {
    let mut message = Message::new(request);
    if around == Around::TestTransaction {
        message.statement(SAVEPOINT);
    }
    if request.max_hold.is_some() {
        select_client_check(&mut message);
    }
    if let [_] = *request.keys {
        select_locks(&mut message, request, Scope::Session, LockTimeout::Leave);
    } else {
        select_locks(&mut message, request, Scope::Xact, LockTimeout::Leave);
        let lock = lock_function(Scope::Session, request.mode);
        select_each(&mut message, request, lock);
    }
    if around == Around::TestTransaction {
        message.statement(UNDO_SAVEPOINT);
        message.select();
        message.column(format_args!("1"));
    }
    if let Some(max_hold) = request.max_hold {
        push_timeouts(&mut message, max_hold);
    }
    message.finish()
}

/// Asks for the keys without waiting; a row is the answer that it took them. Several keys are tried for the transaction first, so that a miss
/// leaves none of them to the session.
pub(crate) fn try_question(request: &Request) -> String {
    let mut message = Message::new(request);
    message.select();
    let session = TryLocks(request, Scope::Session);
    if let [_] = *request.keys {
        message.column(format_args!("1 WHERE {session}"));
    } else {
        let xact = TryLocks(request, Scope::Xact);
        message.column(format_args!("1 WHERE {xact} AND {session}"));
    }
    message.finish()
}

/// Around a [`try_question`] inside a test's transaction.
pub(crate) const SAVEPOINT: &str = "SAVEPOINT advisory_acquire";

/// Undoes an acquisition inside a test's transaction, but for the session's locks.
pub(crate) const UNDO_SAVEPOINT: &str =
    "ROLLBACK TO SAVEPOINT advisory_acquire;RELEASE SAVEPOINT advisory_acquire";

/// Bounds the holder, behind a [`try_question`].
pub(crate) fn bound(max_hold: Duration) -> String {
    let mut sql = Message::empty();
    sql.select();
    push_timeouts(&mut sql, max_hold);
    sql.finish()
}

/// What bounds the holder of a session-level lock whose client has stopped.
const TIMEOUTS: [&str; 3] = [
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
];

fn push_timeouts(message: &mut Message, max_hold: Duration) {
    for setting in TIMEOUTS {
        push_timeout(message, setting, max_hold, false);
    }
}

/// The time-outs that the session has, as the text of a statement that sets them again.
pub(crate) fn saved_timeouts() -> String {
    let mut sql = String::from(
        "SELECT pg_catalog.string_agg(pg_catalog.format('SELECT pg_catalog.set_config(%L,%L,false)',name,setting),';') \
         FROM pg_catalog.pg_settings WHERE false",
    );
    for setting in TIMEOUTS {
        put!(sql, " OR name OPERATOR(pg_catalog.=) '{setting}'");
    }
    sql
}

/// Releases session-level locks, and fails with [`Marker::LockLost`] if one of them was not held any more.
pub(crate) fn release(keys: &[Key], mode: Mode) -> String {
    let unlock = unlock_function(mode);
    let mut sql = String::with_capacity(128);
    if let [key] = *keys {
        put!(sql, "SELECT CAST(CASE WHEN {unlock}({})", Arguments(key));
    } else {
        put!(
            sql,
            "SELECT CAST(CASE WHEN {} OPERATOR(pg_catalog.=) (0",
            keys.len()
        );
        for key in keys {
            put!(
                sql,
                " OPERATOR(pg_catalog.+) CAST({unlock}({}) AS pg_catalog.int4)",
                Arguments(*key)
            );
        }
        sql.push(')');
    }
    put!(
        sql,
        " THEN '1' ELSE '{}' END AS pg_catalog.int4)",
        Marker::LockLost.text()
    );
    sql
}

/// Releases a key behind a wait that timed out, if the session holds it: the server can grant a session-level lock and report the
/// time-out all the same.
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

/// Fails with [`Marker::PooledSession`] where the setting `advisory.pooler` says that the session is not the client's own.
pub(crate) fn check_pooler() -> String {
    let mut message = Message::empty();
    select_pooler_check(&mut message);
    message.finish()
}

pub(super) fn select_pooler_check(message: &mut Message) {
    message.select();
    message.column(format_args!(
        "CAST(CASE WHEN COALESCE(pg_catalog.current_setting('advisory.pooler',true),'') OPERATOR(pg_catalog.=) 'transaction' \
         THEN '{}' ELSE '1' END AS pg_catalog.int4)",
        Marker::PooledSession.text()
    ));
}
