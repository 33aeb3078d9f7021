-- Locks the value of the row of a key. It waits for the lock.
WITH advisory_locked AS MATERIALIZED (
    SELECT advisory_value.per, pg_advisory_xact_lock({lock_key}) AS locked
    FROM (SELECT {per} AS per FROM {table} WHERE ({key}) = (:key) OFFSET 0) AS advisory_value
)
SELECT {reserved}, false AS is_busy
