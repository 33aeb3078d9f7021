-- Signals a backend if it is still the one that was seen, and returns the outcome as a word.
--
-- If this role could not see when the backend started, it must still hold an advisory lock or wait
-- for one. Otherwise the process id may belong to another backend by now.
WITH target AS MATERIALIZED (
    SELECT
        a.pid, a.usesysid,
        COALESCE(
            (SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.oid = a.usesysid), true
        ) AS is_superuser,
        a.backend_start IS NOT NULL OR EXISTS (
            SELECT 1 FROM pg_catalog.pg_locks AS l WHERE l.pid = a.pid AND l.locktype = 'advisory'
        ) AS is_known
    FROM pg_stat_get_activity({pid}) AS a
    WHERE CASE WHEN {started} IS NULL THEN a.backend_start IS NULL
        ELSE (date_part('epoch', a.backend_start) * 1000000::float8)::int8 = {started} END
)
SELECT COALESCE((
    SELECT CASE
        WHEN NOT t.is_known THEN 'pg_monitor'
        WHEN t.is_superuser AND NOT (
            SELECT r.rolsuper FROM pg_catalog.pg_roles AS r WHERE r.rolname = CURRENT_USER
        ) THEN 'superuser'
        WHEN NOT pg_has_role(t.usesysid, 'USAGE'::text)
            AND NOT pg_has_role('pg_signal_backend'::name, 'USAGE'::text) THEN 'pg_signal_backend'
        WHEN {call} THEN 'done'
        ELSE '{otherwise}'
    END
    FROM target AS t
), 'gone')
