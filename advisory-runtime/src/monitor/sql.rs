//! The monitor's SQL.
//!
//! One statement, so that locks, backends and who blocks whom are read at nearly the same moment.
//! `pg_locks` is read once, and the activity of backends after it: a backend that was idle before
//! the statement began, and is idle then, was idle while the locks were read. Ages are by the
//! server's clock.

use super::Backend;

/// Without this, a transaction sees the activity of sessions as it was when it read it first.
pub(super) const FRESH: &str = "SELECT pg_catalog.pg_stat_clear_snapshot()";

/// A time as whole microseconds since 1970.
macro_rules! epoch {
    ($time:literal) => {
        concat!(
            "CAST(pg_catalog.date_part('epoch',",
            $time,
            ") OPERATOR(pg_catalog.*) CAST(1000000 AS pg_catalog.float8) AS pg_catalog.int8)"
        )
    };
}

/// How long ago a time is, in whole microseconds. The clock is read once for all rows, so that who
/// began to wait first has waited for longest.
macro_rules! age {
    ($time:literal) => {
        concat!(
            "CAST(pg_catalog.date_part('epoch',(SELECT pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.-) ",
            $time,
            ") OPERATOR(pg_catalog.*) CAST(1000000 AS pg_catalog.float8) AS pg_catalog.int8)"
        )
    };
}

/// Every advisory lock of this database with its backend, and each backend that blocks one of
/// these, without a lock.
///
/// `objsubid` is 1 for a number and 2 for a pair. No function of SQL takes another one: extensions
/// do, such as Citus with each write, and a program's lock that has the same numbers is not theirs.
///
/// The planner cannot know how many rows these functions return. Arrays and the `LIMIT` keep its
/// estimate so low that it does not compile the statement (JIT), which took 0.7 seconds; 5,000
/// locks and 40 waiters take 30 ms.
///
/// `is_query_cut` reads `pg_settings`: before PostgreSQL 16 `pg_size_bytes` cannot read what
/// `current_setting` gives.
///
/// `involved` has the holders and waiters, those who have tried to get a lock within half a minute,
/// and those who block them, through row and table locks too. A prepared transaction holds locks
/// without a backend, among them the lock on its own transaction id.
pub(super) const LOCKS: &str = concat!(
    "WITH RECURSIVE lock AS MATERIALIZED (
  SELECT l.locktype, l.classid, l.objid, l.objsubid, l.virtualtransaction, l.transactionid, l.pid, l.mode, l.granted, l.waitstart,
    l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.objsubid OPERATOR(pg_catalog.<=) CAST(2 AS pg_catalog.int2)
    AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d
      WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) AS is_ours
  FROM pg_catalog.pg_locks AS l
), wait AS MATERIALIZED (
  SELECT l.pid, CASE WHEN l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.objsubid OPERATOR(pg_catalog.>) CAST(2 AS pg_catalog.int2)
    THEN 'foreign advisory' ELSE l.locktype END AS locktype FROM lock AS l WHERE NOT l.granted
), involved (pid) AS (
  SELECT o.pid FROM pg_catalog.unnest(ARRAY(SELECT l.pid FROM lock AS l WHERE l.is_ours AND l.pid IS NOT NULL)) AS o (pid)
  UNION
  SELECT o.pid FROM pg_catalog.unnest(ARRAY(SELECT t.pid FROM pg_catalog.pg_stat_get_activity(NULL) AS t
    WHERE t.datid OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d
      WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
    AND pg_catalog.strpos(t.query, 'pg_try_advisory') OPERATOR(pg_catalog.>) 0
    AND t.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
    AND t.state_change OPERATOR(pg_catalog.>) (pg_catalog.clock_timestamp()
      OPERATOR(pg_catalog.-) CAST('30 seconds' AS pg_catalog.interval)))) AS o (pid)
  UNION
  SELECT b.pid FROM involved AS i
  CROSS JOIN LATERAL pg_catalog.unnest(pg_catalog.pg_blocking_pids(i.pid)) AS b (pid)
  WHERE i.pid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT w.pid FROM wait AS w)) AND b.pid OPERATOR(pg_catalog.<>) 0
), backend AS MATERIALIZED (
  SELECT i.pid, a.pid IS NOT NULL AS is_there, a.backend_start IS NOT NULL AS is_visible, a.backend_start,
    CASE WHEN a.usesysid IS NOT NULL THEN CAST(pg_catalog.pg_get_userbyid(a.usesysid) AS pg_catalog.text) END AS user_name,
    a.application_name, a.state, a.query,
    pg_catalog.octet_length(a.query) OPERATOR(pg_catalog.>=) (SELECT CAST(s.setting AS pg_catalog.int4) OPERATOR(pg_catalog.-) 1
      FROM pg_catalog.pg_settings AS s WHERE s.name OPERATOR(pg_catalog.=) 'track_activity_query_size') AS is_query_cut,
    pg_catalog.host(a.client_addr) AS client_addr,
    a.xact_start, a.state_change,
    EXISTS (SELECT 1 FROM pg_catalog.pg_db_role_setting AS s CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS c (line)
      WHERE (s.setrole OPERATOR(pg_catalog.=) a.usesysid OR s.setrole OPERATOR(pg_catalog.=) CAST(0 AS pg_catalog.oid))
      AND (s.setdatabase OPERATOR(pg_catalog.=) a.datid OR s.setdatabase OPERATOR(pg_catalog.=) CAST(0 AS pg_catalog.oid))
      AND c.line OPERATOR(pg_catalog.=) ANY (CAST('{advisory.pooler=transaction,advisory.pooler=session}' AS pg_catalog.text[])))
      AS is_pooled,
    w.locktype AS waits_for,
    CASE WHEN w.pid IS NOT NULL THEN pg_catalog.pg_blocking_pids(w.pid) END AS blocked_by
  FROM involved AS i
  LEFT JOIN wait AS w ON w.pid OPERATOR(pg_catalog.=) i.pid
  LEFT JOIN LATERAL (SELECT * FROM pg_catalog.pg_stat_get_activity(i.pid) LIMIT 1) AS a ON true
)
SELECT l.classid, l.objid, l.objsubid, l.mode, l.granted, b.pid,
  b.is_there, b.is_visible, b.user_name, b.application_name, b.state, b.query, b.is_query_cut, b.client_addr,
  ",
    age!("l.waitstart"),
    " AS waited, ",
    age!("b.xact_start"),
    " AS transaction_age, ",
    age!("b.state_change"),
    " AS state_age, ",
    age!("b.backend_start"),
    " AS session_age,
  ",
    epoch!("b.backend_start"),
    " AS started, b.state_change OPERATOR(pg_catalog.<) pg_catalog.statement_timestamp() AS is_settled,
  b.is_pooled, b.waits_for, b.blocked_by,
  p.gid AS prepared, CAST(p.owner AS pg_catalog.text) AS prepared_by, ",
    age!("p.prepared"),
    " AS prepared_age,
  CAST(pg_catalog.current_database() AS pg_catalog.text) AS database_name, CAST(CURRENT_USER AS pg_catalog.text) AS role_name,
  pg_catalog.pg_backend_pid() AS reader,
  pg_catalog.pg_has_role(CAST('pg_read_all_stats' AS pg_catalog.name), CAST('USAGE' AS pg_catalog.text)) AS sees_all
FROM (VALUES (1)) AS once (n)
LEFT JOIN ((SELECT * FROM lock WHERE is_ours) AS l
  FULL JOIN backend AS b ON b.pid OPERATOR(pg_catalog.=) l.pid
  LEFT JOIN lock AS x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype OPERATOR(pg_catalog.=) 'transactionid'
    AND x.virtualtransaction OPERATOR(pg_catalog.=) l.virtualtransaction
  LEFT JOIN pg_catalog.pg_prepared_xacts AS p
    ON CAST(p.transaction AS pg_catalog.text) OPERATOR(pg_catalog.=) CAST(x.transactionid AS pg_catalog.text)
) ON true",
);

pub(super) fn cancel(backend: &Backend) -> String {
    signal("pg_catalog.pg_cancel_backend(t.pid)", "gone", backend)
}

/// Terminates a backend's session and waits for its end, so that its locks are free when this
/// returns.
pub(super) fn terminate(backend: &Backend) -> String {
    let call = "pg_catalog.pg_terminate_backend(t.pid, CAST(5000 AS pg_catalog.int8))";
    signal(call, "sent", backend)
}

/// Signals a backend if it is still the same, and returns the outcome as a word.
///
/// Where this role could not see when it started, the backend must still hold an advisory lock or
/// wait for one: otherwise another backend may have its process id.
fn signal(call: &str, otherwise: &str, backend: &Backend) -> String {
    let is_same = match backend.started {
        Some(started) => format!(
            "{} OPERATOR(pg_catalog.=) CAST({started} AS pg_catalog.int8)",
            epoch!("a.backend_start")
        ),
        None => "a.backend_start IS NULL".to_owned(),
    };
    format!(
        "\
WITH target AS MATERIALIZED (
  SELECT a.pid, a.usesysid,
    COALESCE((SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.oid OPERATOR(pg_catalog.=) a.usesysid), true) AS is_superuser,
    a.backend_start IS NOT NULL OR EXISTS (SELECT 1 FROM pg_catalog.pg_locks AS l
      WHERE l.pid OPERATOR(pg_catalog.=) a.pid AND l.locktype OPERATOR(pg_catalog.=) 'advisory') AS is_known
  FROM pg_catalog.pg_stat_get_activity(CAST({pid} AS pg_catalog.int4)) AS a
  WHERE {is_same}
)
SELECT COALESCE((SELECT CASE
  WHEN NOT t.is_known THEN 'pg_monitor'
  WHEN t.is_superuser AND NOT (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r
    WHERE r.rolname OPERATOR(pg_catalog.=) CURRENT_USER) THEN 'superuser'
  WHEN NOT pg_catalog.pg_has_role(t.usesysid, CAST('USAGE' AS pg_catalog.text))
    AND NOT pg_catalog.pg_has_role(CAST('pg_signal_backend' AS pg_catalog.name), CAST('USAGE' AS pg_catalog.text))
    THEN 'pg_signal_backend'
  WHEN {call} THEN 'done' ELSE '{otherwise}' END FROM target AS t), 'gone')",
        pid = backend.pid,
    )
}

#[cfg(feature = "diesel-async")]
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The schemas of the tables of the name `$1` that have the columns `$2` and `$3`.
#[cfg(feature = "diesel-async")]
pub(super) const CLAIM_TABLES: &str = "SELECT CAST(n.nspname AS pg_catalog.text) AS schema,pg_catalog.pg_table_is_visible(c.oid) AS is_visible \
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
     WHERE c.relname OPERATOR(pg_catalog.=) $1 AND c.relkind IN ('r','p','v','f') \
     AND (SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid \
     AND NOT a.attisdropped AND (a.attname OPERATOR(pg_catalog.=) $2 OR a.attname OPERATOR(pg_catalog.=) $3)) \
     OPERATOR(pg_catalog.=) 2 ORDER BY schema";

/// The claimed rows of a table, whose quoted name is also `$1`, with their primary keys. A time
/// without a zone is in UTC.
#[cfg(feature = "diesel-async")]
pub(super) fn claimed(table: &str, locked_until: &str, locked_by: &str, ends: &[String]) -> String {
    let (until, by) = (quoted(locked_until), quoted(locked_by));
    let ends = ends.iter().fold(String::new(), |ends, column| {
        ends + " AND t." + &quoted(column) + " IS NULL"
    });
    let until = format!(
        "CASE WHEN CAST(pg_catalog.pg_typeof(t.{until}) AS pg_catalog.oid) OPERATOR(pg_catalog.=) CAST(1114 AS pg_catalog.oid) \
         THEN pg_catalog.timezone('UTC',CAST(t.{until} AS pg_catalog.timestamp)) ELSE CAST(t.{until} AS pg_catalog.timestamptz) END"
    );
    format!(
        "SELECT (SELECT pg_catalog.string_agg(pg_catalog.jsonb_extract_path_text(pg_catalog.to_jsonb(t.*),CAST(a.attname AS pg_catalog.text)),\
         ', ' ORDER BY k.n) FROM pg_catalog.pg_index AS i CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k (attnum,n) \
         JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid AND a.attnum OPERATOR(pg_catalog.=) k.attnum \
         WHERE i.indisprimary AND i.indrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)) AS key,\
         CAST(t.{by} AS pg_catalog.text) AS locked_by,CASE WHEN pg_catalog.isfinite(l.until) THEN CAST(pg_catalog.date_part('epoch',\
         l.until OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()) \
         OPERATOR(pg_catalog.*) CAST(1000000 AS pg_catalog.float8) AS pg_catalog.int8) \
         WHEN l.until OPERATOR(pg_catalog.<) pg_catalog.clock_timestamp() THEN -9223372036854775807 END AS remaining \
         FROM {table} AS t CROSS JOIN LATERAL (SELECT {until} AS until) AS l \
         WHERE t.{column} IS NOT NULL{ends} ORDER BY t.{column} LIMIT 1000",
        column = quoted(locked_until),
    )
}
