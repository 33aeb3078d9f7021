-- Every advisory lock of this database with its backend, and, without a lock, each other backend
-- that blocks one of these backends.
--
-- A single statement reads locks, backends and who blocks whom at nearly the same moment. It reads
-- `pg_locks` once, and the activity of backends afterwards: a backend that was idle before the
-- statement began, and still is, was idle while the locks were read. Ages are by the server's
-- clock, in whole microseconds. The clock is read once for all rows, so the waiter that came first
-- has waited for longest.
--
-- `objsubid` is 1 for a number and 2 for a pair. Only extensions use other values, such as Citus
-- for each write. Their locks do not conflict with a program's lock on equal numbers.
--
-- The planner cannot know how many rows these functions return. Arrays and the `LIMIT` keep its
-- estimate so low that it does not compile the statement (JIT), which took 0.7 seconds; 5,000 locks
-- and 40 waiters take 30 ms.
WITH RECURSIVE lock AS MATERIALIZED (
    SELECT
        l.locktype, l.classid, l.objid, l.objsubid, l.virtualtransaction, l.transactionid, l.pid,
        l.mode, l.granted, l.waitstart,
        l.locktype = 'advisory' AND l.objsubid <= 2::int2 AND l.database = (
            SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()
        ) AS is_ours
    FROM pg_catalog.pg_locks AS l
), wait AS MATERIALIZED (
    SELECT
        l.pid,
        CASE WHEN l.locktype = 'advisory' AND l.objsubid > 2::int2 THEN 'foreign advisory'
            ELSE l.locktype END AS locktype
    FROM lock AS l
    WHERE NOT l.granted
), involved (pid) AS (
    -- The holders and waiters, those that have tried to get a lock within half a minute, and those
    -- that block any of these, also by row and table locks.
    SELECT o.pid
    FROM unnest(ARRAY(SELECT l.pid FROM lock AS l WHERE l.is_ours AND l.pid IS NOT NULL)) AS o (pid)
    UNION
    SELECT o.pid FROM unnest(ARRAY(
        SELECT t.pid FROM pg_stat_get_activity(NULL) AS t
        WHERE t.datid = (
            SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database()
        )
        AND strpos(t.query, 'pg_try_advisory') > 0 AND t.pid <> pg_backend_pid()
        AND t.state_change > (clock_timestamp() - '30 seconds'::interval)
    )) AS o (pid)
    UNION
    SELECT b.pid FROM involved AS i
    CROSS JOIN LATERAL unnest(pg_blocking_pids(i.pid)) AS b (pid)
    WHERE i.pid = ANY (ARRAY(SELECT w.pid FROM wait AS w)) AND b.pid <> 0
), backend AS MATERIALIZED (
    SELECT
        i.pid, a.pid IS NOT NULL AS is_there, a.backend_start IS NOT NULL AS is_visible,
        a.backend_start,
        CASE WHEN a.usesysid IS NOT NULL THEN pg_get_userbyid(a.usesysid)::text END AS user_name,
        a.application_name, a.state, a.query,
        -- Before PostgreSQL 16 `pg_size_bytes` cannot read what `current_setting` gives.
        octet_length(a.query) >= (
            SELECT s.setting::int4 - 1 FROM pg_catalog.pg_settings AS s
            WHERE s.name = 'track_activity_query_size'
        ) AS is_query_cut,
        host(a.client_addr) AS client_addr, a.xact_start, a.state_change,
        EXISTS (
            SELECT 1 FROM pg_catalog.pg_db_role_setting AS s
            CROSS JOIN LATERAL unnest(s.setconfig) AS c (line)
            WHERE (s.setrole = a.usesysid OR s.setrole = 0::oid)
            AND (s.setdatabase = a.datid OR s.setdatabase = 0::oid)
            AND c.line = ANY ('{advisory.pooler=transaction,advisory.pooler=session}'::text[])
        ) AS is_pooled,
        w.locktype AS waits_for,
        CASE WHEN w.pid IS NOT NULL THEN pg_blocking_pids(w.pid) END AS blocked_by
    FROM involved AS i
    LEFT JOIN wait AS w ON w.pid = i.pid
    LEFT JOIN LATERAL (SELECT * FROM pg_stat_get_activity(i.pid) LIMIT 1) AS a ON true
)
SELECT
    l.classid, l.objid, l.objsubid, l.mode, l.granted,
    b.pid, b.is_there, b.is_visible, b.user_name, b.application_name, b.state, b.query,
    b.is_query_cut, b.client_addr,
    (date_part('epoch', (SELECT clock_timestamp()) - l.waitstart) * 1000000::float8)::int8 AS waited,
    (date_part('epoch', (SELECT clock_timestamp()) - b.xact_start) * 1000000::float8)::int8 AS transaction_age,
    (date_part('epoch', (SELECT clock_timestamp()) - b.state_change) * 1000000::float8)::int8 AS state_age,
    (date_part('epoch', (SELECT clock_timestamp()) - b.backend_start) * 1000000::float8)::int8 AS session_age,
    (date_part('epoch', b.backend_start) * 1000000::float8)::int8 AS started,
    b.state_change < statement_timestamp() AS is_settled,
    b.is_pooled, b.waits_for, b.blocked_by,
    p.gid AS prepared, p.owner::text AS prepared_by,
    (date_part('epoch', (SELECT clock_timestamp()) - p.prepared) * 1000000::float8)::int8 AS prepared_age,
    current_database()::text AS database_name, CURRENT_USER::text AS role_name,
    pg_backend_pid() AS reader,
    pg_has_role('pg_read_all_stats'::name, 'USAGE'::text) AS sees_all
FROM (VALUES (1)) AS once (n)
LEFT JOIN (
    (SELECT * FROM lock WHERE is_ours) AS l
    FULL JOIN backend AS b ON b.pid = l.pid
    -- A prepared transaction holds locks without a backend, among them the one on its own id.
    LEFT JOIN lock AS x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid'
        AND x.virtualtransaction = l.virtualtransaction
    LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction::text = x.transactionid::text
) ON true
