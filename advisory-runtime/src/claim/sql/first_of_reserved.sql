-- Locks the first rows of the locked values, and no more than each value has room for.
WITH advisory_room AS MATERIALIZED ({room})
SELECT advisory_row.*
FROM advisory_room AS advisory_value
CROSS JOIN LATERAL (
    SELECT {order_columns}, {columns}
    FROM {table}
    WHERE {is_of_value} AND {is_claimable}{conditions}
    ORDER BY {value}, {order}
    LIMIT GREATEST(LEAST(advisory_value.room, {limit}), 0)
    FOR NO KEY UPDATE SKIP LOCKED
) AS advisory_row
ORDER BY {order_names}
LIMIT {limit}
