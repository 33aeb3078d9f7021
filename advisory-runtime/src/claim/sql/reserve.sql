-- Locks the values of the first rows that can be claimed, at most `width`, but none of :passed_over.
WITH RECURSIVE advisory_row AS MATERIALIZED (
    SELECT {per} AS per FROM {table} WHERE {is_claimable}{conditions} ORDER BY {order} LIMIT {near}
),
advisory_near AS MATERIALIZED (
    SELECT numbered.per, min(numbered.nth) AS nth
    FROM (SELECT advisory_row.per, row_number() OVER () AS nth FROM advisory_row) AS numbered
    WHERE NOT (numbered.per = ANY (CAST(:passed_over AS {per_type}[])))
    GROUP BY numbered.per
    ORDER BY nth
),
advisory_locked_near AS MATERIALIZED (
    SELECT advisory_value.per
    FROM advisory_near AS advisory_value
    -- A `CASE`, because the server would call the function first, which is cheaper than the count.
    WHERE CASE WHEN {has_room} THEN pg_try_advisory_xact_lock({lock_key}) END
    LIMIT {width}
),
-- The values one after the other, if the first rows were not enough.
advisory_value (per) AS (
    (
        SELECT {per}
        FROM {table}
        WHERE (SELECT count(*) FROM advisory_locked_near) < {width}
            AND (SELECT count(*) FROM advisory_row) = {near}
            {and_pending}
        ORDER BY {per}
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT {per} FROM {table} WHERE {per} > advisory_value.per {and_pending} ORDER BY {per} LIMIT 1
    )
    FROM advisory_value
    WHERE advisory_value.per IS NOT NULL
),
advisory_far AS MATERIALIZED (
    SELECT advisory_value.per
    FROM advisory_value
    CROSS JOIN LATERAL (
        SELECT {order_columns}
        FROM {table}
        WHERE {is_of_value} AND {is_claimable}{conditions}
        ORDER BY {per}, {order}
        LIMIT 1
    ) AS advisory_first
    WHERE {has_room} AND NOT (advisory_value.per = ANY (CAST(:passed_over AS {per_type}[])))
    ORDER BY {order_names}
),
advisory_locked_far AS MATERIALIZED (
    SELECT advisory_value.per
    FROM advisory_far AS advisory_value
    WHERE pg_try_advisory_xact_lock({lock_key})
    LIMIT {width}
),
advisory_locked AS MATERIALIZED (
    SELECT per FROM advisory_locked_near UNION ALL SELECT per FROM advisory_locked_far
)
SELECT
    {reserved},
    NOT EXISTS (SELECT FROM advisory_locked)
        AND (
            EXISTS (SELECT FROM advisory_far)
            OR EXISTS (SELECT FROM advisory_near AS advisory_value WHERE {has_room})
        ) AS is_busy
