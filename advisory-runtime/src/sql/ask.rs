//! What is asked beside a lock: how far a try came, what the session is like, what its words for an error are.

use super::fragment::{push_is, push_is_held};
use crate::{Key, Mode, Request};

/// Fails in an aborted transaction and nowhere else.
pub(crate) const PROBE: &str = "SELECT";

/// The session's `lock_timeout` and `statement_timeout` in milliseconds, 0 for none.
pub(crate) const TIMEOUTS: &str = "SELECT pg_catalog.string_agg(setting,' ' ORDER BY name) FROM pg_catalog.pg_settings \
     WHERE name OPERATOR(pg_catalog.=) 'lock_timeout' OR name OPERATOR(pg_catalog.=) 'statement_timeout'";

/// Fails as a cancel request does, so that its words in the server's language can be compared.
pub(crate) const CANCELLED_BY_REQUEST: &str =
    "SELECT pg_catalog.pg_cancel_backend(pg_catalog.pg_backend_pid()),pg_catalog.pg_sleep(1)";

/// Fails as `statement_timeout` does.
pub(crate) const CANCELLED_BY_TIMEOUT: &str =
    "SELECT pg_catalog.set_config('statement_timeout','1',true);SELECT pg_catalog.pg_sleep(1)";

/// Fails with the answer in its text: readable without a prepared statement, which a pooler may have none of.
pub(crate) fn say(expression: &str) -> String {
    format!("SELECT CAST(pg_catalog.concat('{SAID}',{expression},'.') AS pg_catalog.int4)")
}

/// What stands before the answer of [`say`]; a point stands behind it.
pub(crate) const SAID: &str = "advisory:answer-";

/// The backend that serves the connection.
pub(crate) const PID: &str = "pg_catalog.pg_backend_pid()";

/// An expression that takes a session-level lock if nobody else has it.
pub(crate) fn try_session(key: i64) -> String {
    format!("pg_catalog.pg_try_advisory_lock(CAST('{key}' AS pg_catalog.int8))")
}

/// An expression that releases it.
pub(crate) fn unlock_session(key: i64) -> String {
    format!("pg_catalog.pg_advisory_unlock(CAST('{key}' AS pg_catalog.int8))")
}

/// Whether another session of this database holds one of the keys.
pub(crate) fn held_elsewhere(keys: &[Key]) -> String {
    let mut sql = String::from(
        "SELECT CAST(pg_catalog.count(*) AS pg_catalog.text) FROM pg_catalog.pg_locks WHERE granted \
         AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid() AND (false",
    );
    for key in keys {
        sql.push_str(" OR ");
        push_is(&mut sql, *key);
    }
    sql.push(')');
    sql
}

/// How many sessions of this database hold the key, or wait for it.
#[cfg(feature = "testing")]
pub(crate) fn seen(key: Key, is_granted: bool) -> String {
    let not = if is_granted { "" } else { "NOT " };
    let mut sql = format!(
        "SELECT CAST(pg_catalog.count(*) AS pg_catalog.text) FROM pg_catalog.pg_locks WHERE {not}granted AND "
    );
    push_is(&mut sql, key);
    sql
}

/// Which of these this session holds: a letter each, `1` for those whose keys it holds all.
pub(crate) fn held_here(locks: &[(Vec<Key>, Mode)]) -> String {
    let mut sql = String::from("SELECT pg_catalog.concat(NULL");
    for (keys, mode) in locks {
        sql.push_str(",CASE WHEN true");
        for key in keys {
            sql.push_str(" AND ");
            push_is_held(&mut sql, *key, Some(*mode));
        }
        sql.push_str(" THEN '1' ELSE '0' END");
    }
    sql.push(')');
    sql
}

/// The answer of a message that tries: how far it came.
pub(crate) const STEP: &str = "SELECT pg_catalog.current_setting('advisory.step',true)";

/// Fails unless [`STEP`] answers this, which was made here: needs no prepared statement.
#[cfg(feature = "diesel-async")]
pub(crate) fn step_is(all: &str) -> String {
    format!(
        "SELECT CAST(CASE WHEN pg_catalog.current_setting('advisory.step',true) OPERATOR(pg_catalog.=) '{all}' \
         THEN '1' ELSE '{SAID}.' END AS pg_catalog.int4)"
    )
}

/// What [`STEP`] answers when all keys were taken.
pub(crate) fn step_of_all(token: u64, request: &Request, scope_is_session: bool) -> String {
    if scope_is_session {
        format!("{token}.{}", request.keys.len())
    } else {
        "true".to_owned()
    }
}
