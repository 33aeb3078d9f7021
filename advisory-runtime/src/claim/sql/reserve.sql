-- Locks the values of the first rows that can be claimed, at most {width}. Leaves out the values in
-- :passed_over and those at their limits.
--
-- Reads the first {reach} rows. If there are more, and these have too few values, also reads the
-- first rows of {far} values, in a circle that begins at a random :start, because the rows of one
-- value may precede all others.
WITH RECURSIVE advisory_row AS MATERIALIZED (
    SELECT {value} AS value FROM {table} WHERE {is_claimable}{conditions} ORDER BY {order} LIMIT {reach}
),
advisory_near AS MATERIALIZED (
    SELECT advisory_value.value, min(advisory_value.nth) AS nth
    FROM (SELECT advisory_row.value, row_number() OVER () AS nth FROM advisory_row) AS advisory_value
    WHERE {is_wanted}
    GROUP BY advisory_value.value
    ORDER BY nth
),
advisory_locked_near AS MATERIALIZED (
    SELECT advisory_value.value
    FROM advisory_near AS advisory_value
    -- Without the `CASE`, the server would call the function first, because it is cheaper than the
    -- count.
    WHERE CASE WHEN {has_room} THEN pg_try_advisory_xact_lock({lock_key}) END
    LIMIT {width}
),
-- The server reads only as much of the circle as `advisory_walked` fetches.
advisory_circle (value) AS (
    SELECT {first_value}
    WHERE (SELECT count(*) FROM advisory_locked_near) < {width} AND (SELECT count(*) FROM advisory_row) = {reach}
    UNION
    SELECT {next_value} FROM advisory_circle
),
advisory_walked AS MATERIALIZED (
    SELECT advisory_circle.value FROM advisory_circle LIMIT {far}
),
advisory_far AS MATERIALIZED (
    SELECT advisory_value.value
    FROM advisory_walked AS advisory_value
    CROSS JOIN LATERAL (
        SELECT {order_columns}
        FROM {table}
        WHERE {is_of_value} AND {is_claimable}{conditions}
        ORDER BY {value}, {order}
        LIMIT 1
    ) AS advisory_first
    WHERE {is_wanted} AND {has_room}
    ORDER BY {order_names}
),
advisory_locked_far AS MATERIALIZED (
    SELECT advisory_value.value FROM advisory_far AS advisory_value WHERE pg_try_advisory_xact_lock({lock_key}) LIMIT {width}
),
advisory_locked AS MATERIALIZED (
    SELECT value FROM advisory_locked_near UNION ALL SELECT value FROM advisory_locked_far
)
SELECT
    {reserved},
    NOT EXISTS (SELECT FROM advisory_locked)
        AND (
            EXISTS (SELECT FROM advisory_far)
            OR EXISTS (SELECT FROM advisory_near AS advisory_value WHERE {has_room})
        ) AS is_busy,
    (SELECT count(*) FROM advisory_row) = {reach} AND (SELECT count(*) FROM advisory_walked) = {far} AS has_more
