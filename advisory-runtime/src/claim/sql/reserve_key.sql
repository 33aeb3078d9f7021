-- Locks the value of the row with a key, and waits for the lock.
WITH advisory_locked AS MATERIALIZED (
    SELECT advisory_value.value, pg_advisory_xact_lock({lock_key}) AS locked
    FROM (SELECT {value} AS value FROM {table} WHERE ({key}) = (:key) OFFSET 0) AS advisory_value
)
SELECT {reserved}, false AS is_busy, false AS has_more
