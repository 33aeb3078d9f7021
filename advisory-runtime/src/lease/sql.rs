//! Every statement on the lease table. `$1` is the key's hash, `$2` the grant's random number.
//!
//! All times are `clock_timestamp()`: `now()` is when the transaction began, before any wait.
//!
//! **Why a later grant has the larger token.** Each grant locks its key (`$7`, until its transaction ends) before it draws from the
//! sequence, so two grants of one key draw one after the other. Without the lock, a session could draw a number, be stopped, and
//! insert it after a larger one.

use crate::renewal::{DURABLE, micros};

/// Does not wait for the disk: after a crash that loses a release, the lease expires.
const FORGETTABLE: &str = "pg_catalog.set_config('synchronous_commit','off',true)";

const KEY: &str = "key_hash OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.bytea)";
/// The row of the grant, held or kept.
const OURS: &str = "key_hash OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.bytea) \
     AND grant_id OPERATOR(pg_catalog.=) CAST($2 AS pg_catalog.int8)";
/// The row of the grant, if it is not kept.
const GRANT: &str = "key_hash OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.bytea) \
     AND grant_id OPERATOR(pg_catalog.=) CAST($2 AS pg_catalog.int8) AND NOT is_kept";
const VALID: &str = "expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()";
const EXPIRED: &str = "expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()";

/// How many rows a sweep removes in one statement.
pub(super) const SWEPT: i64 = 10_000;

/// This many milliseconds from now.
fn after(milliseconds: &str) -> String {
    format!(
        "pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) (CAST('1 ms' AS pg_catalog.interval) OPERATOR(pg_catalog.*) \
         CAST(CAST({milliseconds} AS pg_catalog.int8) AS pg_catalog.float8))"
    )
}

/// The time until the row expires, in microseconds.
fn left() -> String {
    micros("expires_at OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()")
}

/// The statements of one table.
pub(super) struct Texts {
    pub(super) acquire: String,
    pub(super) renew: String,
    pub(super) release: String,
    pub(super) keep: String,
    pub(super) holds: String,
    pub(super) is_kept: String,
    pub(super) fence: String,
    pub(super) is_current: String,
    pub(super) find: String,
    pub(super) list: String,
    pub(super) sweep: String,
    pub(super) is_missing: String,
}

/// Whether the server is a standby.
pub(super) const IS_STANDBY: &str = "SELECT 1 WHERE pg_catalog.pg_is_in_recovery()";

impl Texts {
    /// `table` and `sequence` are quoted, with their schema.
    pub(super) fn new(table: &str, sequence: &str) -> Self {
        let row = format!(
            "SELECT key_hash,token,pattern,key,holder,is_kept,{},{},{} FROM {table}",
            micros("acquired_at"),
            micros("expires_at"),
            left()
        );
        Self {
            acquire: acquire(table, sequence),
            renew: update(
                table,
                GRANT,
                &format!("expires_at=GREATEST(l.expires_at,{})", after("$3")),
            ),
            // A second release gives the same answer, since the first may have been lost.
            release: format!(
                "UPDATE {table} SET expires_at=LEAST(expires_at,pg_catalog.clock_timestamp()),key=NULL WHERE {GRANT} \
                 RETURNING {FORGETTABLE}"
            ),
            keep: update(
                table,
                OURS,
                &format!("is_kept=true,key=NULL,expires_at={}", after("$3")),
            ),
            holds: format!("SELECT 1 FROM {table} WHERE {GRANT} AND {VALID}"),
            // Waits for a transaction that has changed the row, and reads the result.
            is_kept: format!(
                "WITH own AS MATERIALIZED (SELECT is_kept FROM {table} WHERE {OURS} FOR SHARE) SELECT 1 FROM own WHERE is_kept"
            ),
            // Renewals change no key column, so this row lock lets them pass. A take-over locks the whole row, so one since this
            // statement began is noticed.
            fence: format!(
                "WITH fenced AS MATERIALIZED (SELECT expires_at FROM {table} WHERE {GRANT} AND {VALID} FOR KEY SHARE) \
                 SELECT {} FROM fenced",
                at_most_left("idle_in_transaction_session_timeout")
            ),
            is_current: format!(
                "EXISTS (SELECT 1 FROM {table} WHERE {GRANT} AND {VALID} FOR KEY SHARE)"
            )
            .replace("$1", "$")
            .replace("$2", "$"),
            find: format!("{row} WHERE {KEY} AND {VALID}"),
            list: format!("{row} WHERE {VALID} ORDER BY expires_at"),
            sweep: format!(
                "DELETE FROM {table} WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT ctid FROM {table} WHERE {EXPIRED} \
                 LIMIT CAST($1 AS pg_catalog.int8) FOR UPDATE SKIP LOCKED)) RETURNING {FORGETTABLE}"
            ),
            is_missing: format!("SELECT 1 WHERE pg_catalog.to_regclass('{table}') IS NULL"),
        }
    }
}

/// Grants a free key: updates its row, or inserts one. A refused try writes nothing.
///
/// The answer is the token, if the key is this grant's; the time left of a lease from before this statement, and zero for a new
/// grant; and the session's `lock_timeout`. The token and the time left of an earlier try's grant come from one reading of its row.
///
/// An insertion also looks at eight rows from a random place of the index (`$8`) and removes those that have expired. If every key is
/// used once, expired rows settle at a seventh of the others: then each insertion removes one on average.
fn acquire(table: &str, sequence: &str) -> String {
    let token = format!("pg_catalog.nextval('{sequence}')");
    let expires = after("$6");
    let zero = "CAST(0 AS pg_catalog.int8)";
    // An unused column would not be evaluated, so the setting is made part of the token's expression.
    let granted = format!(
        "token OPERATOR(pg_catalog.+) CAST(pg_catalog.length(COALESCE(pg_catalog.left({DURABLE},0),'')) AS pg_catalog.int8) AS token"
    );
    format!(
        // `CASE` guarantees the order: a try that is refused anyway does not take the lock.
        "WITH free AS MATERIALIZED (SELECT 1 WHERE CASE WHEN EXISTS (SELECT 1 FROM {table} WHERE {KEY} AND {VALID}) THEN false \
         ELSE pg_catalog.pg_try_advisory_xact_lock(CAST($7 AS pg_catalog.int8)) END),\
         taken AS (UPDATE {table} SET token={token},grant_id=CAST($2 AS pg_catalog.int8),holder=CAST($3 AS pg_catalog.text),\
         key=CAST($4 AS pg_catalog.text),pattern=CAST($5 AS pg_catalog.text),is_kept=false,\
         acquired_at=pg_catalog.clock_timestamp(),expires_at={expires} WHERE {KEY} AND {EXPIRED} \
         AND EXISTS (SELECT 1 FROM {table} AS l,free WHERE {KEY} AND {EXPIRED} FOR UPDATE OF l SKIP LOCKED) \
         RETURNING {granted}),\
         made AS (INSERT INTO {table} (key_hash,token,grant_id,holder,key,pattern,acquired_at,expires_at) \
         SELECT CAST($1 AS pg_catalog.bytea),{token},CAST($2 AS pg_catalog.int8),CAST($3 AS pg_catalog.text),\
         CAST($4 AS pg_catalog.text),CAST($5 AS pg_catalog.text),pg_catalog.clock_timestamp(),{expires} FROM free \
         WHERE NOT EXISTS (SELECT 1 FROM taken) \
         AND NOT EXISTS (SELECT 1 FROM {table} AS l,free WHERE {KEY} FOR KEY SHARE OF l SKIP LOCKED) \
         ON CONFLICT DO NOTHING RETURNING {granted}),\
         swept AS (DELETE FROM {table} WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT ctid FROM {table} \
         WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT ctid FROM (SELECT ctid,expires_at FROM {table} \
         WHERE (SELECT true FROM made) AND key_hash OPERATOR(pg_catalog.>=) CAST($8 AS pg_catalog.bytea) \
         ORDER BY key_hash LIMIT 8) AS near WHERE {EXPIRED})) AND {EXPIRED} FOR UPDATE SKIP LOCKED))) \
         SELECT COALESCE((SELECT token FROM taken),(SELECT token FROM made),found.token),\
         COALESCE((SELECT {zero} FROM taken),(SELECT {zero} FROM made),found.time_left,{zero}),{} \
         FROM (SELECT) AS once LEFT JOIN (SELECT CASE WHEN {GRANT} THEN token END AS token,\
         GREATEST(CAST(1 AS pg_catalog.int8),{}) AS time_left FROM {table} WHERE {KEY} AND {VALID}) AS found ON true",
        micros(&setting("lock_timeout")),
        left()
    )
}

/// A timeout of the session.
fn setting(name: &str) -> String {
    format!("CAST(pg_catalog.current_setting('{name}') AS pg_catalog.interval)")
}

/// Changes the holder's row. It is locked first, because an `UPDATE` computes its values before it waits for the row.
fn update(table: &str, grant: &str, set: &str) -> String {
    format!(
        "WITH own AS MATERIALIZED (SELECT key_hash,expires_at AS until FROM {table} WHERE {grant} AND {VALID} \
         FOR NO KEY UPDATE) UPDATE {table} AS l SET {set} FROM own WHERE l.key_hash OPERATOR(pg_catalog.=) own.key_hash \
         AND own.until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() RETURNING {DURABLE}"
    )
}

/// Sets a timeout to the time until the row expires, unless the session's is shorter. It ends a writer that has stopped.
fn at_most_left(setting: &str) -> String {
    let left = "GREATEST(CAST(1 AS pg_catalog.int8),CAST(pg_catalog.ceil(pg_catalog.date_part('epoch',expires_at \
         OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) CAST(1000 AS pg_catalog.float8)) \
         AS pg_catalog.int8))";
    let now = self::setting(setting);
    format!(
        "CASE WHEN {now} OPERATOR(pg_catalog.=) CAST('0' AS pg_catalog.interval) OR {now} OPERATOR(pg_catalog.>) \
         (expires_at OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()) \
         THEN pg_catalog.set_config('{setting}',CAST(LEAST({left},CAST(2147483647 AS pg_catalog.int8)) AS pg_catalog.text),true) END"
    )
}
