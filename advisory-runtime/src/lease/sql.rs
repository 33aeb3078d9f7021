//! Every statement on the lease table; the only place that spells it.
//!
//! All time is the server's `clock_timestamp()`: `now()` is that of the transaction's start, before any wait. Nothing here waits
//! for another holder: a row that somebody locks counts as taken. `$1` is the key's hash, `$2` the grant's number, `$3` its token.

use crate::sql::probe::SAID;

/// What the answer to an acquisition starts with when the key was free; the token follows.
pub(super) const TAKEN: &str = "taken";
/// What it starts with when it was not; what is left in milliseconds and the session's `lock_timeout` follow.
pub(super) const OTHERS: &str = "others";
/// The answer to what only the holder may do.
pub(super) const HELD: &str = "held";

/// What the server calls this very statement where it is prepared: behind a pooler that tracks them another name than ours.
pub(super) const PREPARED_NAMES: &str = "SELECT pg_catalog.string_agg(name,',') FROM pg_catalog.pg_prepared_statements \
     WHERE pg_catalog.strpos(statement,'advisory.prepared') OPERATOR(pg_catalog.>) 0";

/// Whether the server is a standby.
pub(super) const IS_STANDBY: &str =
    "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'standby' END";

/// A token that a crash forgets is issued twice, so the write waits for the disk, whatever the session's setting is.
const DURABLE: &str = "CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) \
     ANY (CAST('{off,local,remote_write}' AS pg_catalog.text[])) \
     THEN pg_catalog.left(pg_catalog.set_config('synchronous_commit','on',true),0) END";

/// A crash that forgets a release leaves the key taken until it expires, which harms nobody: no wait for the disk.
const FORGETTABLE: &str =
    "pg_catalog.left(pg_catalog.set_config('synchronous_commit','off',true),0)";

const KEY: &str = "key_hash OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.bytea)";
const GRANT: &str = "key_hash OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.bytea) \
     AND grant_id OPERATOR(pg_catalog.=) CAST($2 AS pg_catalog.int8) AND fence OPERATOR(pg_catalog.=) CAST($3 AS pg_catalog.int8)";
/// The grant of a kept key: nobody's, but known to who asks again because no answer came.
const NOBODY: &str = "OPERATOR(pg_catalog.~) CAST($2 AS pg_catalog.int8)";
const KEPT: &str = "key_hash OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.bytea) \
     AND (grant_id OPERATOR(pg_catalog.=) CAST($2 AS pg_catalog.int8) OR grant_id OPERATOR(pg_catalog.=) \
     (OPERATOR(pg_catalog.~) CAST($2 AS pg_catalog.int8))) AND fence OPERATOR(pg_catalog.=) CAST($3 AS pg_catalog.int8)";
const VALID: &str = "expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()";
const EXPIRED: &str = "expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()";

/// So many milliseconds from now.
fn after(milliseconds: &str) -> String {
    format!(
        "pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) (CAST('1 ms' AS pg_catalog.interval) OPERATOR(pg_catalog.*) \
         CAST(CAST({milliseconds} AS pg_catalog.int8) AS pg_catalog.float8))"
    )
}

/// A time as whole microseconds since 1970.
fn micros(time: &str) -> String {
    format!(
        "CAST(pg_catalog.date_part('epoch',{time}) OPERATOR(pg_catalog.*) CAST(1000000 AS pg_catalog.float8) AS pg_catalog.int8)"
    )
}

/// What is left of a row's time, in whole microseconds.
fn left() -> String {
    micros("expires_at OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()")
}

/// A text as hexadecimal digits, which nothing between here and there changes.
fn hex(text: &str) -> String {
    format!("pg_catalog.encode(pg_catalog.convert_to({text},'UTF8'),'hex')")
}

/// A row, as [`Row`](super::Row) reads it.
fn row() -> String {
    format!(
        "pg_catalog.concat_ws(' ',pg_catalog.encode(key_hash,'hex'),fence,pg_catalog.concat('h',{}),pg_catalog.concat('k',{}),{},{},{})",
        hex("holder"),
        hex("key"),
        micros("acquired_at"),
        micros("expires_at"),
        left(),
    )
}

/// The statements of one table, made once.
pub(super) struct Texts {
    pub(super) acquire: String,
    pub(super) renew: String,
    pub(super) release: String,
    pub(super) keep: String,
    pub(super) find: String,
    pub(super) list: String,
    pub(super) list_of: String,
    pub(super) holds: String,
    pub(super) erase: String,
    pub(super) fence: String,
    pub(super) is_current: String,
    pub(super) is_missing: String,
    /// What an acquisition says of itself once it is committed.
    pub(super) outcome: String,
}

impl Texts {
    /// `table` is quoted.
    pub(super) fn new(table: &str) -> Self {
        let others = format!(
            "pg_catalog.concat_ws(' ','{OTHERS}',COALESCE((SELECT {} FROM {table} WHERE {KEY}),CAST(0 AS pg_catalog.int8)),\
             pg_catalog.current_setting('lock_timeout'))",
            left()
        );
        let granted = format!("pg_catalog.concat('{TAKEN} ',fence,{DURABLE}) AS answer");
        let expires = after("$5");
        let renewed = after("$4");
        Self {
            // The row of a free key is locked first, without waiting. A key that is seen for the first time is inserted; who loses
            // that race has no lock on the row, so it takes nothing, not even what was released meanwhile: a write can be fenced
            // by it.
            acquire: format!(
                "WITH taken AS (UPDATE {table} SET fence=fence OPERATOR(pg_catalog.+) CAST(1 AS pg_catalog.int8),\
                 grant_id=CAST($2 AS pg_catalog.int8),holder=CAST($3 AS pg_catalog.text),key=CAST($4 AS pg_catalog.text),\
                 acquired_at=pg_catalog.clock_timestamp(),expires_at={expires} WHERE {KEY} AND {EXPIRED} \
                 AND EXISTS (SELECT 1 FROM {table} WHERE {KEY} AND {EXPIRED} FOR UPDATE SKIP LOCKED) RETURNING {granted}),\
                 made AS (INSERT INTO {table} (key_hash,fence,grant_id,holder,key,acquired_at,expires_at) \
                 SELECT CAST($1 AS pg_catalog.bytea),1,CAST($2 AS pg_catalog.int8),CAST($3 AS pg_catalog.text),\
                 CAST($4 AS pg_catalog.text),pg_catalog.clock_timestamp(),{expires} \
                 WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {KEY}) ON CONFLICT DO NOTHING RETURNING {granted}) \
                 SELECT COALESCE((SELECT answer FROM taken),(SELECT answer FROM made),{others})"
            ),
            outcome: format!(
                "COALESCE((SELECT pg_catalog.concat('{TAKEN} ',fence) FROM {table} WHERE {KEY} \
                 AND grant_id OPERATOR(pg_catalog.=) CAST($2 AS pg_catalog.int8)),{others})"
            ),
            // Locked first: what an update computes it computes before it waits for the row.
            renew: format!(
                "WITH own AS MATERIALIZED (SELECT key_hash,expires_at AS until FROM {table} WHERE {GRANT} AND {VALID} \
                 FOR NO KEY UPDATE) \
                 UPDATE {table} AS l SET expires_at=GREATEST(l.expires_at,{renewed}) FROM own \
                 WHERE l.key_hash OPERATOR(pg_catalog.=) own.key_hash \
                 AND own.until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() \
                 RETURNING pg_catalog.concat('{HELD}',{DURABLE})"
            ),
            release: format!(
                "UPDATE {table} SET expires_at=pg_catalog.clock_timestamp(),key=NULL WHERE {GRANT} AND {VALID} \
                 RETURNING pg_catalog.concat('{HELD}',{FORGETTABLE})"
            ),
            keep: format!(
                "WITH own AS MATERIALIZED (SELECT key_hash,expires_at AS until FROM {table} WHERE {KEPT} AND {VALID} \
                 FOR NO KEY UPDATE) \
                 UPDATE {table} AS l SET grant_id={NOBODY},expires_at={renewed},key=NULL FROM own \
                 WHERE l.key_hash OPERATOR(pg_catalog.=) own.key_hash \
                 AND own.until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() \
                 RETURNING pg_catalog.concat('{HELD}',{DURABLE})"
            ),
            find: format!("SELECT {} FROM {table} WHERE {KEY} AND {VALID}", row()),
            list: format!("SELECT {} FROM {table} WHERE {VALID}", row()),
            list_of: format!(
                "SELECT {} FROM {table} WHERE holder OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.text) AND {VALID}",
                row()
            ),
            holds: format!("SELECT '{HELD}' FROM {table} WHERE {GRANT} AND {VALID}"),
            erase: format!(
                "WITH erased AS (UPDATE {table} SET key=NULL WHERE key IS NOT NULL AND {EXPIRED} RETURNING 1) \
                 SELECT CAST(pg_catalog.count(*) AS pg_catalog.text) FROM erased"
            ),
            // A renewal changes no column of the primary key, so it passes by this lock. A take-over does not: it locks the whole
            // row first, which its update keeps, so one that has happened since this statement began is found out too. A writer
            // that has stopped is ended as long after its last statement as was left of the lease here.
            fence: format!(
                "WITH fenced AS MATERIALIZED (SELECT expires_at FROM {table} WHERE {GRANT} AND {VALID} FOR KEY SHARE) \
                 SELECT pg_catalog.concat('{HELD}',pg_catalog.left({},0)) FROM fenced",
                at_most_left("idle_in_transaction_session_timeout")
            ),
            is_current: format!(
                "EXISTS (SELECT 1 FROM {table} WHERE {GRANT} AND {VALID} FOR KEY SHARE)"
            ),
            is_missing: format!(
                "SELECT CASE WHEN pg_catalog.to_regclass('{table}') IS NULL THEN 'missing' END"
            ),
        }
    }
}

/// Sets a time-out to what is left of the row's time, unless the session has a shorter one.
fn at_most_left(setting: &str) -> String {
    let left = "GREATEST(CAST(1 AS pg_catalog.int8),CAST(pg_catalog.ceil(pg_catalog.date_part('epoch',expires_at \
         OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) CAST(1000 AS pg_catalog.float8)) \
         AS pg_catalog.int8))";
    let now = format!("CAST(pg_catalog.current_setting('{setting}') AS pg_catalog.interval)");
    format!(
        "CASE WHEN {now} OPERATOR(pg_catalog.=) CAST('0' AS pg_catalog.interval) OR {now} OPERATOR(pg_catalog.>) \
         (expires_at OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()) \
         THEN pg_catalog.set_config('{setting}',CAST(LEAST({left},CAST(2147483647 AS pg_catalog.int8)) AS pg_catalog.text),true) END"
    )
}

/// How a statement answers where nothing but an error's text comes back: behind a pooler that tracks no prepared statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Written and committed first, then asked for.
    Committed,
    /// Only a refusal is said, and it undoes nothing.
    Flag,
    /// Rows are said.
    Rows,
}

/// Undoes what an answer has broken in an open transaction, and nothing else.
pub(super) const HEARD: &str =
    "ROLLBACK TO SAVEPOINT advisory_said;RELEASE SAVEPOINT advisory_said";

/// As [`said`], in an open transaction that goes on behind it.
pub(super) fn said_inside(text: &str, answer: Answer, outcome: &str) -> String {
    match answer {
        Answer::Committed => format!(
            "{text};SAVEPOINT advisory_said;\
             SELECT CAST(pg_catalog.concat('{SAID}',{outcome},'.') AS pg_catalog.int4)"
        ),
        Answer::Flag | Answer::Rows => format!(
            "SAVEPOINT advisory_said;{};RELEASE SAVEPOINT advisory_said",
            said(text, answer, outcome)
        ),
    }
}

/// A statement, its values in place, that says its answer in the text of an error.
pub(super) fn said(text: &str, answer: Answer, outcome: &str) -> String {
    match answer {
        // One implicit transaction up to the `BEGIN`, so that an error leaves the session idle.
        Answer::Committed => format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;{text};BEGIN;COMMIT;\
             SELECT CAST(pg_catalog.concat('{SAID}',{outcome},'.') AS pg_catalog.int4)"
        ),
        Answer::Flag => format!(
            "WITH said AS ({text}) SELECT CAST(CASE WHEN EXISTS (SELECT 1 FROM said) THEN '1' \
             ELSE '{SAID}.' END AS pg_catalog.int4)"
        ),
        Answer::Rows => format!(
            "WITH said(said) AS ({text}) \
             SELECT CAST(pg_catalog.concat('{SAID}',pg_catalog.string_agg(said,','),'.') AS pg_catalog.int4) FROM said"
        ),
    }
}
