//! Every statement that this crate sends for a lock; the only place that spells `pg_advisory_*`.
//!
//! Functions, operators and types are `pg_catalog.`-qualified and keys are cast: an unqualified
//! `pg_advisory_xact_lock(42)` picks a `public.pg_advisory_xact_lock(int)` that somebody put first on the `search_path`.
//! Nothing but numbers made here enters the text.

use crate::Key;
use std::fmt::Write;
use std::num::NonZeroU32;

/// What the server's error text contains when the transaction is not the one that begin opened.
pub(crate) const ENDED: &str = "advisory:transaction-ended";
/// What it contains when a transaction is open that Diesel does not know of, which this message must not commit.
const FOREIGN: &str = "advisory:foreign-transaction";
/// What it contains when the outer transaction reads from a snapshot older than the lock.
pub(crate) const STALE: &str = "advisory:stale-snapshot";

/// A client that dies while it waits leaves the queue. Left alone where the user has set it, on servers before 14, and on
/// platforms where setting it is an error.
const NOTICE_DEAD_CLIENT: &str = "CASE WHEN pg_catalog.current_setting('client_connection_check_interval',true) \
     OPERATOR(pg_catalog.=) '0' AND pg_catalog.strpos(pg_catalog.version(),'linux') OPERATOR(pg_catalog.>) 0 \
     THEN pg_catalog.set_config('client_connection_check_interval','1000',true) END";

/// Opens a transaction that holds the keys, in one message.
///
/// A message with several statements is one implicit transaction, and the `BEGIN` at its end makes it an explicit one,
/// locks kept. So an error on the way leaves the session idle: there is nothing to roll back. The lock has a statement
/// of its own, because what runs in one statement with it reads from a snapshot taken before the wait. The level is
/// always stated, since any role may have another default.
pub(crate) fn begin(token: u64, keys: &[Key]) -> String {
    let mut sql = String::with_capacity(640);
    sql.push_str("SET TRANSACTION ISOLATION LEVEL READ COMMITTED;SELECT pg_catalog.set_config('advisory.token','");
    push(&mut sql, token);
    sql.push_str("',true)");
    sql.push(',');
    sql.push_str(NOTICE_DEAD_CLIENT);
    // In the implicit transaction of this message the two clocks are one reading.
    sql.push_str(",CAST(CASE WHEN pg_catalog.now() OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp() THEN '1' ELSE '");
    sql.push_str(FOREIGN);
    sql.push_str("' END AS pg_catalog.int4);");
    push_lock(&mut sql, keys);
    sql.push_str(";BEGIN");
    sql
}

/// Takes the keys inside the open transaction of depth `outer`, under the savepoint that Diesel would set at this depth.
///
/// Under REPEATABLE READ and SERIALIZABLE the outer snapshot is older than the lock: what the holder before us wrote
/// would not be seen, so it is refused.
pub(crate) fn begin_nested(outer: NonZeroU32, token: u64, keys: &[Key]) -> String {
    let mut sql = String::with_capacity(768);
    sql.push_str("SAVEPOINT diesel_savepoint_");
    push(&mut sql, outer);
    // Undone with the savepoint, so that one of the same name is told apart.
    sql.push_str(";SELECT pg_catalog.set_config('advisory.token_");
    push(&mut sql, outer);
    sql.push_str("','");
    push(&mut sql, token);
    sql.push_str("',true),");
    sql.push_str(NOTICE_DEAD_CLIENT);
    sql.push_str(
        ",CAST(CASE WHEN pg_catalog.left(pg_catalog.current_setting('transaction_isolation'),4) \
         OPERATOR(pg_catalog.=) 'read' THEN '1' ELSE '",
    );
    sql.push_str(STALE);
    sql.push_str("' END AS pg_catalog.int4);");
    push_lock(&mut sql, keys);
    sql
}

/// Commits only while the transaction is alive and still the one that [`begin`] opened.
///
/// A `COMMIT` alone answers an aborted transaction with `ROLLBACK` and no error; any statement before it fails there.
pub(crate) fn commit(token: u64) -> String {
    format!(
        "SELECT CAST(CASE WHEN pg_catalog.current_setting('advisory.token',true) OPERATOR(pg_catalog.=) '{token}' \
         THEN '1' ELSE '{ENDED}' END AS pg_catalog.int4);COMMIT"
    )
}

/// Commits the savepoint, if it is still the one that [`begin_nested`] set; the keys stay locked to the end of the outer
/// transaction.
pub(crate) fn release_savepoint(outer: NonZeroU32, token: u64) -> String {
    format!(
        "SELECT CAST(CASE WHEN pg_catalog.current_setting('advisory.token_{outer}',true) OPERATOR(pg_catalog.=) '{token}' \
         THEN '1' ELSE '{ENDED}' END AS pg_catalog.int4);RELEASE SAVEPOINT diesel_savepoint_{outer}"
    )
}

/// Undoes the savepoint and frees the keys that were taken under it.
pub(crate) fn rollback_to_savepoint(outer: NonZeroU32) -> String {
    format!("ROLLBACK TO SAVEPOINT diesel_savepoint_{outer}")
}

/// Ends whatever transaction is open; a warning where none is.
pub(crate) const ROLLBACK: &str = "ROLLBACK";

/// Fails in an aborted transaction and nowhere else.
pub(crate) const PROBE: &str = "SELECT";

/// Rolls back, and leaves the session in a failed transaction: it holds no lock and refuses whatever comes.
pub(crate) const DOOM: &str = "ROLLBACK;BEGIN;SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";

/// Rolls back and ends the session. Where that is refused, as after a SET ROLE, it is left as [`DOOM`] leaves it.
pub(crate) const TERMINATE: &str = "ROLLBACK;BEGIN;SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid());\
     SELECT CAST('advisory:abandoned' AS pg_catalog.int4)";

/// The session's `lock_timeout` in milliseconds, 0 for none, as text.
pub(crate) const LOCK_TIMEOUT: &str =
    "SELECT setting FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'lock_timeout'";

/// Takes the sorted keys in their order, each once, in as few statements as the server allows.
fn push_lock(sql: &mut String, keys: &[Key]) {
    let keys = keys.chunk_by(PartialEq::eq).filter_map(<[Key]>::first);
    for (index, key) in keys.enumerate() {
        sql.push_str(match index {
            0 => "SELECT ",
            // A target list has at most 1,664 entries.
            _ if index % 1000 == 0 => ";SELECT ",
            _ => ",",
        });
        match key {
            Key::BigInt(key) => {
                sql.push_str("pg_catalog.pg_advisory_xact_lock(CAST('");
                push(sql, key);
                sql.push_str("' AS pg_catalog.int8))");
            }
            Key::IntInt(first, second) => {
                sql.push_str("pg_catalog.pg_advisory_xact_lock(CAST('");
                push(sql, first);
                sql.push_str("' AS pg_catalog.int4),CAST('");
                push(sql, second);
                sql.push_str("' AS pg_catalog.int4))");
            }
        }
    }
}

fn push(sql: &mut String, number: impl std::fmt::Display) {
    // Writing to a `String` cannot fail.
    let _: std::fmt::Result = write!(sql, "{number}");
}
