//! Parts of the statements in `lock::way`, and the other statements about locks.
//!
//! Functions, operators and types are qualified with `pg_catalog.`, so that no `search_path` can
//! change their meaning. Statements contain only numbers, text made here, and the escaped literal of
//! [`Request::at`](crate::Request::at); [`query_comment`](crate::query_comment) makes the comment in
//! front safe.

macro_rules! put {
    ($sql:expr, $($text:tt)*) => {
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = std::fmt::Write::write_fmt(&mut $sql, format_args!($($text)*));
    };
}

pub(crate) use put;

pub(crate) mod own_locks;
pub(crate) mod probe;
#[cfg_attr(
    not(feature = "diesel-async"),
    allow(dead_code, unreachable_pub, reason = "leases need all of it")
)]
pub(crate) mod qualify;
pub(crate) mod try_lock;
pub(crate) mod unlock;

use crate::request::Scope;
use crate::{Key, Mode};
use std::fmt;
use std::num::NonZeroU32;

/// Quotes an identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(crate) const fn lock_function(scope: Scope, mode: Mode) -> &'static str {
    match (scope, mode) {
        (Scope::Xact, Mode::Exclusive) => "pg_catalog.pg_advisory_xact_lock",
        (Scope::Xact, Mode::Shared) => "pg_catalog.pg_advisory_xact_lock_shared",
        (Scope::Session, Mode::Exclusive) => "pg_catalog.pg_advisory_lock",
        (Scope::Session, Mode::Shared) => "pg_catalog.pg_advisory_lock_shared",
    }
}

pub(crate) const fn try_function(scope: Scope, mode: Mode) -> &'static str {
    match (scope, mode) {
        (Scope::Xact, Mode::Exclusive) => "pg_catalog.pg_try_advisory_xact_lock",
        (Scope::Xact, Mode::Shared) => "pg_catalog.pg_try_advisory_xact_lock_shared",
        (Scope::Session, Mode::Exclusive) => "pg_catalog.pg_try_advisory_lock",
        (Scope::Session, Mode::Shared) => "pg_catalog.pg_try_advisory_lock_shared",
    }
}

pub(crate) const fn unlock_function(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "pg_catalog.pg_advisory_unlock",
        Mode::Shared => "pg_catalog.pg_advisory_unlock_shared",
    }
}

/// A key as the arguments of a `pg_advisory_*` function. It needs no cast: the functions have one
/// form with one argument, and each half of a pair is an `int4` literal.
pub(crate) struct Arguments(pub(crate) Key);

impl fmt::Display for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Key::BigInt(key) => write!(f, "{key}"),
            Key::IntInt(first, second) => write!(f, "{first},{second}"),
        }
    }
}

/// Fails with the text unless the condition is true. This needs no prepared statement, which a
/// pooler may not track. The expected answer is not an error, which the server would log.
pub(crate) fn fail_unless(condition: &str, text: &str) -> String {
    format!("SELECT CAST(CASE WHEN {condition} THEN '1' ELSE '{text}' END AS pg_catalog.int4)")
}

/// Makes the commit wait for the disk, even with the session's `synchronous_commit` off. It is an
/// expression that is always true, so that a `WHERE` can contain it. Plain SQL, to be qualified. It
/// has few functions, because the server prepares each of them for each statement, even if it calls
/// none.
pub(crate) const MAKE_DURABLE: &str = "CASE WHEN current_setting('synchronous_commit') \
     = ANY (CAST('{off,local,remote_write}' AS text[])) \
     THEN set_config('synchronous_commit', 'on', true) IS NOT NULL ELSE true END";

/// The outcome of the transaction `asked.id`, without waiting for it: `own` for the current
/// transaction, `in progress` for one that the snapshot does not show, and NULL for one that the
/// server does not know, such as after a failover. Plain SQL, to be qualified.
pub(crate) const OUTCOME: &str = "CASE WHEN asked.id = pg_current_xact_id_if_assigned() THEN 'own' \
     WHEN asked.id > pg_current_xact_id() THEN NULL \
     WHEN NOT pg_visible_in_snapshot(asked.id, pg_current_snapshot()) THEN 'in progress' \
     ELSE pg_xact_status(asked.id) END";

pub(crate) const IDLE_IN_TRANSACTION: &str = "idle_in_transaction_session_timeout";

/// A column that bounds a timeout until the end of the transaction, unless the session's is
/// shorter. Takes the bound as an interval and in milliseconds.
pub(crate) fn at_most(setting: &str, interval: &str, millis: &str) -> String {
    let now = format!("CAST(pg_catalog.current_setting('{setting}') AS pg_catalog.interval)");
    format!(
        "CASE WHEN {now} OPERATOR(pg_catalog.=) CAST('0' AS pg_catalog.interval) OR {now} OPERATOR(pg_catalog.>) {interval} \
         THEN pg_catalog.set_config('{setting}',CAST(LEAST({millis},CAST(2147483647 AS pg_catalog.int8)) AS pg_catalog.text),true) END"
    )
}

/// Ends any open transaction; the server warns if none is open.
pub(crate) const ROLLBACK: &str = "ROLLBACK";

pub(crate) fn savepoint(outer: NonZeroU32) -> String {
    format!("advisory_savepoint_{outer}")
}

/// Rolls back to the savepoint of a call in the transaction of this depth, and releases the keys
/// that were taken under it.
pub(crate) fn rollback_to_savepoint(outer: NonZeroU32) -> String {
    let savepoint = savepoint(outer);
    format!("ROLLBACK TO SAVEPOINT {savepoint};RELEASE SAVEPOINT {savepoint}")
}

/// Ends the transaction and the session. A role may not have the right to end its own session, as
/// after a `SET ROLE`: the session is then left in a failed transaction, where it holds no lock and
/// refuses every statement. The level is named because a role's defaults can make a statement wait
/// for a snapshot.
#[cfg(feature = "diesel-async")]
pub(crate) const TERMINATE: &str = "ROLLBACK;\
     SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;SELECT pg_catalog.pg_advisory_unlock_all();BEGIN;\
     SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid());\
     SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";

/// Rolls back, and leaves the session in a failed transaction, where it holds no lock and refuses
/// every statement. The level is named for the reason given at `TERMINATE`.
#[cfg(feature = "postgres")]
pub(crate) const POISON: &str = "ROLLBACK;\
     SET TRANSACTION ISOLATION LEVEL READ COMMITTED NOT DEFERRABLE;SELECT pg_catalog.pg_advisory_unlock_all();BEGIN;\
     SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";
