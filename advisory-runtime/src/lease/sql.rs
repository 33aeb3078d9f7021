//! Every statement on the lease table. `$1` is the key's hash, `$2` the acquisition's random number, and in a holder's statements `$3`
//! the token.
//!
//! All times are `clock_timestamp()`: `now()` is when the transaction began, before any wait.

mod token;

use crate::sql::{DURABLE, IDLE_IN_TRANSACTION, at_most, micros, timeout};
pub(super) use token::{BEHIND, timeline};
use token::{draw, is_behind, move_sequence};

/// Does not wait for the disk: after a crash that loses a release, the lease expires.
const FORGETTABLE: &str = "pg_catalog.set_config('synchronous_commit','off',true)";

const KEY: &str = "key_hash OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.bytea)";
/// The row of the grant, held or kept. A try whose answer was lost can arrive after another holder's term and is granted the key with
/// the same random number, but with another token. A server that was restored from a dump grants tokens again, but not the number.
const GRANT: &str = "key_hash OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.bytea) \
     AND grant_id OPERATOR(pg_catalog.=) CAST($2 AS pg_catalog.int8) AND token OPERATOR(pg_catalog.=) CAST($3 AS pg_catalog.int8)";
/// The row of any grant of the acquisition, if it is not kept: for those that know no token yet.
const ACQUISITION: &str = "key_hash OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.bytea) \
     AND grant_id OPERATOR(pg_catalog.=) CAST($2 AS pg_catalog.int8) AND NOT is_kept";
const VALID: &str = "expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()";
const EXPIRED: &str = "expires_at OPERATOR(pg_catalog.<=) pg_catalog.clock_timestamp()";

/// What is held or kept and has a text (`$1`) in its holder or its label, or is among these patterns (`$2`) or keys (`$3`). The clock
/// is read once.
const WANTED: &str = "expires_at OPERATOR(pg_catalog.>) (SELECT pg_catalog.clock_timestamp()) \
     AND (CAST($1 AS pg_catalog.text) IS NULL \
     OR pg_catalog.strpos(pg_catalog.lower(holder),pg_catalog.lower(CAST($1 AS pg_catalog.text))) OPERATOR(pg_catalog.>) 0 \
     OR pg_catalog.strpos(pg_catalog.lower(COALESCE(key,pattern,pg_catalog.left(pg_catalog.encode(key_hash,'hex'),16))),\
     pg_catalog.lower(CAST($1 AS pg_catalog.text))) OPERATOR(pg_catalog.>) 0 \
     OR pattern OPERATOR(pg_catalog.=) ANY (CAST($2 AS pg_catalog.text[])) \
     OR key_hash OPERATOR(pg_catalog.=) ANY (CAST($3 AS pg_catalog.bytea[])))";

/// How many rows a sweep removes in one statement.
pub(super) const SWEPT: i64 = 10_000;

/// This many milliseconds from now.
fn after(milliseconds: &str) -> String {
    format!(
        "pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) (CAST('1 ms' AS pg_catalog.interval) OPERATOR(pg_catalog.*) \
         CAST(CAST({milliseconds} AS pg_catalog.int8) AS pg_catalog.float8))"
    )
}

/// A time that is put between 1970 and the year 192103. Beyond that, such as at `infinity`, differences and microseconds fail with
/// 22008 and 22003.
fn bounded(time: &str) -> String {
    format!(
        "GREATEST(LEAST({time},pg_catalog.to_timestamp(CAST({NEVER} AS pg_catalog.float8))),\
         pg_catalog.to_timestamp(CAST(0 AS pg_catalog.float8)))"
    )
}

/// The time until the row expires, in microseconds.
fn left() -> String {
    let expires = bounded("expires_at");
    micros(&format!(
        "{expires} OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()"
    ))
}

/// The statements of one table.
pub(super) struct Texts {
    by_timeline: Grants,
    /// For a server that has no timeline, or does not tell it, and for a test's transaction, which must not lock the table.
    by_number: Grants,
    pub(super) is_moved: String,
    pub(super) set_data: String,
    pub(super) renew: String,
    pub(super) release: String,
    pub(super) free: String,
    pub(super) keep: String,
    pub(super) complete: String,
    pub(super) holds: String,
    pub(super) is_kept: String,
    pub(super) fence: String,
    pub(super) is_current: String,
    pub(super) find: String,
    pub(super) between: String,
    pub(super) list: String,
    pub(super) counts: String,
    pub(super) some: String,
    pub(super) sweep: String,
    pub(super) is_missing: String,
    pub(super) lacks: String,
}

/// The statements of a grant.
pub(super) struct Grants {
    pub(super) acquire: String,
    pub(super) take_over: String,
    pub(super) move_sequence: String,
}

impl Texts {
    pub(super) const fn grants(&self, has_timeline: bool) -> &Grants {
        if has_timeline {
            &self.by_timeline
        } else {
            &self.by_number
        }
    }
}

impl Grants {
    fn new(table: &str, sequence: &str, has_timeline: bool) -> Self {
        Self {
            acquire: acquire(table, sequence, has_timeline),
            take_over: take_over(table, sequence, has_timeline),
            move_sequence: move_sequence(table, sequence, has_timeline),
        }
    }
}

/// The latest time that is distinguished from `infinity`, in seconds since 1970.
pub(super) const NEVER: i64 = 6_000_000_000_000;

/// Whether the server is a standby.
pub(super) const IS_STANDBY: &str = "SELECT 1 WHERE pg_catalog.pg_is_in_recovery()";

impl Texts {
    /// The name consists of letters, digits and `_`.
    pub(super) fn new(schema: &str, name: &str) -> Self {
        let table = &format!("\"{schema}\".\"{name}\"");
        let sequence = &format!("\"{schema}\".\"{name}_token\"");
        let row = format!(
            "SELECT key_hash,token,pattern,key,holder,data,is_kept,{},{},{} FROM {table}",
            micros(&bounded("acquired_at")),
            micros(&bounded("expires_at")),
            left()
        );
        let held = &format!("{GRANT} AND NOT is_kept");
        let keep = update(
            table,
            GRANT,
            &format!("is_kept=true,key=NULL,expires_at={}", after("$4")),
        );
        Self {
            by_timeline: Grants::new(table, sequence, true),
            by_number: Grants::new(table, sequence, false),
            is_moved: format!(
                "SELECT 1 WHERE pg_catalog.pg_sequence_last_value('{sequence}') OPERATOR(pg_catalog.>=) CAST($1 AS pg_catalog.int8)"
            ),
            set_data: update(table, held, "data=CAST($4 AS pg_catalog.text)"),
            renew: update(
                table,
                held,
                &format!("expires_at=GREATEST(l.expires_at,{})", after("$4")),
            ),
            // A second release gives the same answer, since the first may have been lost.
            release: format!(
                "UPDATE {table} SET expires_at=LEAST(expires_at,pg_catalog.clock_timestamp()),key=NULL,data=NULL WHERE {ACQUISITION} \
                 RETURNING {FORGETTABLE}"
            ),
            // The number is one that no try sends, so the holder has lost the lease, also when the server's clock is set back.
            free: {
                let seen = format!("{KEY} AND token OPERATOR(pg_catalog.=) CAST($3 AS pg_catalog.int8) AND {VALID}");
                format!(
                    "WITH own AS MATERIALIZED (SELECT key_hash AS found FROM {table} WHERE {seen} FOR UPDATE) \
                     UPDATE {table} SET grant_id=CAST($2 AS pg_catalog.int8),key=NULL,data=NULL,is_kept=false,\
                     expires_at=pg_catalog.clock_timestamp() FROM own WHERE key_hash OPERATOR(pg_catalog.=) own.found AND {seen} \
                     RETURNING {DURABLE}"
                )
            },
            complete: format!(
                "{keep},{}",
                idle_at_most_left("own.until")
            ),
            keep,
            holds: format!("SELECT 1 FROM {table} WHERE {held} AND {VALID}"),
            // Waits for a transaction that has changed the row, and reads the result.
            is_kept: format!(
                "WITH own AS MATERIALIZED (SELECT is_kept FROM {table} WHERE {GRANT} FOR SHARE) SELECT 1 FROM own WHERE is_kept"
            ),
            // Renewals change no key column, so this row lock lets them pass. A take-over locks the whole row, so one since this
            // statement began is noticed.
            fence: format!(
                "WITH fenced AS MATERIALIZED (SELECT expires_at FROM {table} WHERE {held} AND {VALID} FOR KEY SHARE) \
                 SELECT {} FROM fenced",
                idle_at_most_left("expires_at")
            ),
            is_current: format!(
                "EXISTS (SELECT 1 FROM {table} WHERE {held} AND {VALID} FOR KEY SHARE)"
            )
            .replace("$1", "$")
            .replace("$2", "$")
            .replace("$3", "$"),
            find: format!("{row} WHERE {KEY} AND {VALID}"),
            between: format!(
                "{row} WHERE key_hash OPERATOR(pg_catalog.>=) CAST($1 AS pg_catalog.bytea) \
                 AND key_hash OPERATOR(pg_catalog.<=) CAST($2 AS pg_catalog.bytea) AND {VALID} ORDER BY key_hash LIMIT 2"
            ),
            list: format!("{row} WHERE {VALID} ORDER BY expires_at"),
            counts: format!(
                "SELECT pattern,pg_catalog.count(*) FILTER (WHERE NOT is_kept),pg_catalog.count(*) FILTER (WHERE is_kept) \
                 FROM {table} WHERE {WANTED} GROUP BY pattern ORDER BY pg_catalog.count(*) DESC LIMIT CAST($4 AS pg_catalog.int8)"
            ),
            some: ["NOT is_kept", "is_kept"]
                .map(|which| {
                    format!(
                        "({row} WHERE {which} AND {WANTED} ORDER BY expires_at LIMIT CAST($4 AS pg_catalog.int8))"
                    )
                })
                .join(" UNION ALL "),
            sweep: format!(
                // A row whose token the sequence has not reached shows that it is behind.
                "DELETE FROM {table} WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT ctid FROM {table} WHERE {EXPIRED} \
                 AND token OPERATOR(pg_catalog.<=) (SELECT pg_catalog.pg_sequence_last_value('{sequence}')) \
                 LIMIT CAST($1 AS pg_catalog.int8) FOR UPDATE SKIP LOCKED)) RETURNING {FORGETTABLE}"
            ),
            is_missing: format!("SELECT 1 WHERE pg_catalog.to_regclass('{table}') IS NULL"),
            lacks: lacks(schema, name),
        }
    }
}

/// Grants a free key: updates its row, or inserts one. A try for a key that is held writes nothing.
///
/// The answer is the token, if the key is this grant's; the time left of a lease from before this statement, and for a new grant
/// zero, or -1 if the sequence is behind; and the session's `lock_timeout`. Without a token, a time left below zero is that of a kept
/// key. The token and the time left of an earlier try's grant come from one reading of its row.
///
/// An insertion also looks at eight rows from a random place of the index (`$9`) and removes those that have expired. If every key is
/// used once, expired rows settle at a seventh of the others: then each insertion removes one on average. A row with a larger token
/// than the number drawn stays, because it shows that the sequence is behind.
fn acquire(table: &str, sequence: &str, has_timeline: bool) -> String {
    let number = durable(&draw(sequence, has_timeline));
    let expires = after("$6");
    let zero = "CAST(0 AS pg_catalog.int8)";
    let (set, is_behind) = (regrant("(SELECT number FROM free)"), is_behind(sequence));
    format!(
        // `CASE` guarantees the order: a try that is refused anyway does not take the lock. The number is drawn here, for
        // both statements that can use it: each execution initializes every expression, whether it is evaluated or not.
        "WITH free AS MATERIALIZED (SELECT {number} AS number WHERE CASE WHEN EXISTS (SELECT 1 FROM {table} WHERE {KEY} AND {VALID}) THEN false \
         ELSE pg_catalog.pg_try_advisory_xact_lock(CAST($8 AS pg_catalog.int8)) END),\
         taken AS (UPDATE {table} SET {set} WHERE {KEY} AND {EXPIRED} \
         AND EXISTS (SELECT 1 FROM {table} AS l,free WHERE {KEY} AND {EXPIRED} FOR UPDATE OF l SKIP LOCKED) \
         RETURNING token,{is_behind} AS behind),\
         made AS (INSERT INTO {table} (key_hash,token,grant_id,holder,key,pattern,data,acquired_at,expires_at) \
         SELECT CAST($1 AS pg_catalog.bytea),free.number,CAST($2 AS pg_catalog.int8),CAST($3 AS pg_catalog.text),\
         CAST($4 AS pg_catalog.text),CAST($5 AS pg_catalog.text),CAST($7 AS pg_catalog.text),pg_catalog.clock_timestamp(),{expires} \
         FROM free \
         WHERE NOT EXISTS (SELECT 1 FROM taken) \
         AND NOT EXISTS (SELECT 1 FROM {table} AS l,free WHERE {KEY} FOR KEY SHARE OF l SKIP LOCKED) \
         ON CONFLICT DO NOTHING RETURNING token,{is_behind} AS behind,pg_catalog.currval('{sequence}') AS drawn),\
         swept AS (DELETE FROM {table} WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT ctid FROM {table} \
         WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT near.ctid FROM made,LATERAL (SELECT ctid,expires_at,token FROM {table} \
         WHERE made.token IS NOT NULL AND key_hash OPERATOR(pg_catalog.>=) CAST($9 AS pg_catalog.bytea) \
         ORDER BY key_hash LIMIT 8) AS near WHERE {EXPIRED} AND near.token OPERATOR(pg_catalog.<) made.drawn)) AND {EXPIRED} FOR UPDATE SKIP LOCKED))) \
         SELECT COALESCE((SELECT token FROM taken),(SELECT token FROM made),found.token),\
         COALESCE((SELECT behind FROM taken),(SELECT behind FROM made),found.time_left,{zero}),{} \
         FROM (SELECT) AS once LEFT JOIN (SELECT CASE WHEN {ACQUISITION} THEN token END AS token,\
         GREATEST(CAST(1 AS pg_catalog.int8),{}) OPERATOR(pg_catalog.*) \
         CAST(CASE WHEN is_kept THEN -1 ELSE 1 END AS pg_catalog.int8) AS time_left FROM {table} WHERE {KEY} AND {VALID}) AS found ON true",
        micros(&timeout("lock_timeout")),
        left()
    )
}

/// Takes over the row with this token (`$8`), whether it has expired or not. The answer is as that of [`acquire`], without a row if there
/// is none with this token.
///
/// The row is locked first, which waits for the transaction of a fenced write: a renewal's lock would not.
fn take_over(table: &str, sequence: &str, has_timeline: bool) -> String {
    let token = "token OPERATOR(pg_catalog.=) CAST($8 AS pg_catalog.int8)";
    format!(
        "WITH own AS MATERIALIZED (SELECT key_hash AS found FROM {table} WHERE {KEY} AND {token} AND NOT is_kept FOR UPDATE) \
         UPDATE {table} SET {} FROM own WHERE key_hash OPERATOR(pg_catalog.=) own.found AND {token} AND NOT is_kept \
         RETURNING token,{},CAST(0 AS pg_catalog.int8)",
        regrant(&durable(&draw(sequence, has_timeline))),
        is_behind(sequence)
    )
}

/// The values of a grant to another holder, in the row that the key has.
fn regrant(number: &str) -> String {
    format!(
        "token=GREATEST({number},token OPERATOR(pg_catalog.+) CAST(1 AS pg_catalog.int8)),\
         grant_id=CAST($2 AS pg_catalog.int8),holder=CAST($3 AS pg_catalog.text),key=CAST($4 AS pg_catalog.text),\
         pattern=CAST($5 AS pg_catalog.text),data=CAST($7 AS pg_catalog.text),is_kept=false,\
         acquired_at=pg_catalog.clock_timestamp(),expires_at={}",
        after("$6")
    )
}

/// A number whose commit waits for the disk. An unused column would not be evaluated, so the setting is made part of the number's
/// expression.
fn durable(number: &str) -> String {
    format!(
        "{number} OPERATOR(pg_catalog.+) CAST(pg_catalog.length(COALESCE(pg_catalog.left({DURABLE},0),'')) AS pg_catalog.int8)"
    )
}

/// Asks why a statement failed: `true` if the table does not exist, `false` if the role lacks a right that a grant needs (`$1` is at
/// least 1) or that moving the sequence needs (2). It reads the catalog, since `to_regclass` fails if the role may not use the schema.
fn lacks(schema: &str, name: &str) -> String {
    let relation = |alias: &str, name: &str| {
        format!(
            "LEFT JOIN pg_catalog.pg_class AS {alias} ON {alias}.relnamespace OPERATOR(pg_catalog.=) n.oid \
             AND {alias}.relname OPERATOR(pg_catalog.=) CAST('{name}' AS pg_catalog.name)"
        )
    };
    let has = |function: &str, alias: &str, right: &str| {
        format!("pg_catalog.{function}({alias}.oid,CAST('{right}' AS pg_catalog.text))")
    };
    let needed = |least: i32| {
        format!(
            "CAST($1 AS pg_catalog.int8) OPERATOR(pg_catalog.>=) CAST({least} AS pg_catalog.int8)"
        )
    };
    let rights = [
        has("has_schema_privilege", "n", "USAGE"),
        has("has_table_privilege", "t", "SELECT"),
        has("has_table_privilege", "t", "INSERT"),
        has("has_table_privilege", "t", "UPDATE"),
        has("has_table_privilege", "t", "DELETE"),
        has("has_sequence_privilege", "s", "USAGE"),
    ];
    format!(
        "SELECT CASE WHEN t.oid IS NULL THEN true WHEN {} AND NOT ({}) OR {} AND NOT {} THEN false END FROM (SELECT) AS once \
         LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname OPERATOR(pg_catalog.=) CAST('{schema}' AS pg_catalog.name) {} {}",
        needed(1),
        rights.join(" AND "),
        needed(2),
        has("has_sequence_privilege", "s", "UPDATE"),
        relation("t", name),
        relation("s", &format!("{name}_token")),
    )
}

/// Changes the holder's row. It is locked first, because an `UPDATE` computes its values before it waits for the row.
fn update(table: &str, grant: &str, set: &str) -> String {
    format!(
        "WITH own AS MATERIALIZED (SELECT key_hash,expires_at AS until FROM {table} WHERE {grant} AND {VALID} \
         FOR NO KEY UPDATE) UPDATE {table} AS l SET {set} FROM own WHERE l.key_hash OPERATOR(pg_catalog.=) own.key_hash \
         AND own.until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() RETURNING {DURABLE}"
    )
}

/// A column that bounds the idle time of the transaction by the time until the row expires. It ends a writer that has stopped.
fn idle_at_most_left(expires: &str) -> String {
    let expires = bounded(expires);
    let left = format!("({expires} OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp())");
    let millis = format!(
        "GREATEST(CAST(1 AS pg_catalog.int8),CAST(pg_catalog.ceil(pg_catalog.date_part('epoch',{left}) \
         OPERATOR(pg_catalog.*) CAST(1000 AS pg_catalog.float8)) AS pg_catalog.int8))"
    );
    at_most(IDLE_IN_TRANSACTION, &left, &millis)
}
