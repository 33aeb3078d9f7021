//! Queries about the session, and about locks that others hold.

use super::own_locks::{key_sql, own_count};
use super::{Arguments, fail_unless, try_function};
use crate::error::Marker;
use crate::request::Scope;
use crate::{Key, Mode, Request};
use std::num::NonZeroU32;

/// Fails only in an aborted transaction.
pub(crate) const ALIVE: &str = "SELECT";

/// Fails in an aborted transaction and outside of one.
pub(crate) const IN_TRANSACTION: &str = "SAVEPOINT advisory_alive;RELEASE SAVEPOINT advisory_alive";

/// Always fails. In a failed transaction the error says that the savepoint does not exist, and
/// without a transaction that none is open. A transaction that had not failed has failed then.
pub(crate) const NO_SAVEPOINT: &str = "ROLLBACK TO SAVEPOINT advisory_none";

/// Fails unless a refused commit was certainly rolled back: a deferred trigger can have refused it,
/// and no other server, as with Citus and foreign servers, commits parts of the transaction.
///
/// With `is_interrupted` it also fails if the server logs or reports anything after a commit. While
/// it does, it processes a cancel request or a timeout that came during the commit, and answers
/// 57014 although the transaction is committed.
pub(crate) fn check_rollback_sql(is_interrupted: bool) -> String {
    let logs = if is_interrupted { LOGS_NO_COMMITS } else { "" };
    let has_deferrable = "EXISTS(SELECT 1 FROM pg_catalog.pg_trigger WHERE tgdeferrable)";
    fail_unless(&format!("{has_deferrable} AND {IS_ALONE}{logs}"), "unknown")
}

/// A condition: no other server commits parts of a transaction.
const IS_ALONE: &str = "NOT EXISTS(SELECT 1 FROM pg_catalog.pg_foreign_server) \
     AND NOT EXISTS(SELECT 1 FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'citus')";

pub(crate) fn commits_alone() -> String {
    fail_unless(IS_ALONE, "unknown")
}

const LOGS_NO_COMMITS: &str = " AND pg_catalog.current_setting('log_duration') OPERATOR(pg_catalog.=) 'off' \
     AND pg_catalog.current_setting('log_min_duration_statement') OPERATOR(pg_catalog.=) '-1' \
     AND pg_catalog.current_setting('log_min_duration_sample') OPERATOR(pg_catalog.=) '-1' \
     AND pg_catalog.current_setting('log_transaction_sample_rate') OPERATOR(pg_catalog.=) '0' \
     AND pg_catalog.current_setting('log_statement_stats') OPERATOR(pg_catalog.=) 'off' \
     AND pg_catalog.strpos(pg_catalog.current_setting('log_min_messages'),'debug') OPERATOR(pg_catalog.=) 0 \
     AND pg_catalog.strpos(pg_catalog.current_setting('client_min_messages'),'debug') OPERATOR(pg_catalog.=) 0";

/// The session's `lock_timeout` in milliseconds, 0 for none.
pub(crate) const LOCK_TIMEOUT: &str =
    "SELECT setting FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'lock_timeout'";

/// The backend that serves the connection. Read inside a transaction, where a pooler keeps the
/// backend between two messages.
#[cfg(feature = "postgres")]
pub(crate) const PID: &str = "SELECT CAST(pg_catalog.pg_backend_pid() AS pg_catalog.text)";

/// The backend's process id, followed by ` citus` on a node of a Citus cluster, where the
/// extension's catalog exists.
pub(crate) const PID_AND_CITUS: &str = "SELECT CAST(pg_catalog.pg_backend_pid() AS pg_catalog.text) OPERATOR(pg_catalog.||) \
     CASE WHEN pg_catalog.to_regclass('pg_catalog.pg_dist_local_group') IS NULL THEN '' ELSE ' citus' END";

/// A condition: this node of a Citus cluster is not the coordinator, which has the group 0.
pub(crate) const IS_CITUS_WORKER: &str =
    "EXISTS(SELECT 1 FROM pg_catalog.pg_dist_local_group WHERE groupid OPERATOR(pg_catalog.<>) 0)";

/// Like [`fail_unless`], if the condition is true.
pub(crate) fn fail_if(condition: &str, marker: Marker) -> String {
    let marker = marker.text();
    format!("SELECT CAST(CASE WHEN {condition} THEN '{marker}' ELSE '1' END AS pg_catalog.int4)")
}

/// A condition: the backend of this connection is not this process. It is always true for a
/// negative number, which no process has.
pub(crate) fn not_backend_sql(process: i32) -> String {
    format!("NOT pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {process}")
}

/// A condition: the server is a standby, whose locks sessions on the primary do not see.
pub(crate) const IN_RECOVERY: &str = "pg_catalog.pg_is_in_recovery()";

/// Fails with a marker on a standby, inside a transaction that Diesel does not know of, and with
/// `needs_session` if the setting `advisory.pooler` is `transaction`. In a message of its own,
/// outside of a transaction, the two clocks are equal.
pub(crate) fn check_session(needs_session: bool) -> String {
    let (standby, foreign) = (Marker::Standby.text(), Marker::ForeignTransaction.text());
    let pooled = if needs_session {
        format!(
            " WHEN pg_catalog.current_setting('advisory.pooler',true) OPERATOR(pg_catalog.=) 'transaction' THEN '{}'",
            Marker::PooledSession.text()
        )
    } else {
        String::new()
    };
    format!(
        "SELECT CAST(CASE WHEN {IN_RECOVERY} THEN '{standby}'{pooled} \
         WHEN pg_catalog.now() OPERATOR(pg_catalog.<>) pg_catalog.statement_timestamp() THEN '{foreign}' \
         ELSE '1' END AS pg_catalog.int4)"
    )
}

pub(crate) fn set_mark(depth: NonZeroU32, mark: u64) -> String {
    format!("SELECT pg_catalog.set_config('advisory.mark_{depth}','{mark}',true)")
}

/// Fails with [`Marker::TransactionEnded`] unless [`set_mark`] has marked the transaction. After a
/// `RESET ALL`, which removes the mark, the locks show that the transaction has not ended.
pub(crate) fn check_mark(depth: NonZeroU32, mark: u64, request: &Request) -> String {
    let current =
        format!("pg_catalog.current_setting('advisory.mark_{depth}',true) OPERATOR(pg_catalog.=)");
    let held = match &request.permits[..] {
        // Only the locks' node could tell.
        _ if request.at.is_some() => "true".to_owned(),
        [] => held_sql(request.keys.len(), &request.keys, request.mode),
        permits => held_sql(1, permits, request.mode),
    };
    let ended = Marker::TransactionEnded.text();
    format!(
        "SELECT CAST(CASE WHEN {current} '{mark}' THEN '1' WHEN {current} '' THEN CASE WHEN {held} \
         THEN '1' ELSE '{ended}' END ELSE '{ended}' END AS pg_catalog.int4)"
    )
}

/// Selects a digit for each lock: `1` if the server process holds the key in this database.
pub(crate) fn held_by(locks: &[(Key, u32)]) -> String {
    let mut sql = String::from("SELECT pg_catalog.concat(NULL");
    for (key, process) in locks {
        let this_key = key_sql(*key);
        put!(
            sql,
            ",CASE WHEN EXISTS(SELECT 1 FROM pg_catalog.pg_locks WHERE granted AND pid OPERATOR(pg_catalog.=) {process} \
             AND {this_key}) THEN '1' ELSE '0' END"
        );
    }
    sql.push(')');
    sql
}

/// Counts the sessions of this database that hold the key or, if not `is_granted`, wait for it.
#[cfg(feature = "testing")]
pub(crate) fn count_sessions(key: Key, is_granted: bool) -> String {
    let not = if is_granted { "" } else { "NOT " };
    let this_key = key_sql(key);
    format!(
        "SELECT CAST(pg_catalog.count(*) AS pg_catalog.text) FROM pg_catalog.pg_locks WHERE {not}granted AND {this_key}"
    )
}

/// Selects a digit for each lock: `1` if this session holds all its keys.
pub(crate) fn held_here(locks: &[(Vec<Key>, Mode)]) -> String {
    let mut sql = String::from("SELECT pg_catalog.concat(NULL");
    for (keys, mode) in locks {
        let held = held_sql(keys.len(), keys, *mode);
        put!(sql, ",CASE WHEN {held} THEN '1' ELSE '0' END");
    }
    sql.push(')');
    sql
}

/// Fails with [`Marker::LockLost`] unless the session holds every key.
pub(crate) fn holds_all(keys: &[Key], mode: Mode) -> String {
    holds(keys.len(), keys, mode)
}

/// Fails with [`Marker::LockLost`] unless the session holds at least this many of the keys.
pub(crate) fn holds(least: usize, keys: &[Key], mode: Mode) -> String {
    fail_unless(&held_sql(least, keys, mode), Marker::LockLost.text())
}

fn held_sql(least: usize, keys: &[Key], mode: Mode) -> String {
    format!("{least} OPERATOR(pg_catalog.<=) {}", own_count(keys, mode))
}

/// Fails with [`Marker::LockLost`] unless the transaction holds every key at the node of these
/// rows. It takes them again, because it cannot read another node's catalogs.
pub(crate) fn takes_all(rows: &str, keys: &[Key], mode: Mode) -> String {
    let function = try_function(Scope::Xact, mode);
    let mut are_taken = String::from("pg_catalog.count(*) OPERATOR(pg_catalog.>=) 0");
    for key in keys {
        put!(are_taken, " AND {function}({})", Arguments(*key));
    }
    let take = fail_unless(&are_taken, Marker::LockLost.text());
    format!("{take} FROM {rows}")
}
