-- Takes over the row with this token, whether it has expired or not. It locks the row first, so it
-- waits for the transaction of a fenced write; the lock of a renewal would not. The answer is like
-- that of `acquire.sql`, and empty if there is no such row.
WITH own AS MATERIALIZED (
    SELECT token FROM {table} WHERE key_hash = :key AND token = :seen AND NOT is_kept FOR UPDATE
),
free AS MATERIALIZED (
    SELECT drawn.*, {may_be_granted} AS may_be_granted
    FROM (SELECT own.token, nextval({sequence}) AS number FROM own) AS drawn
),
granted AS (
    UPDATE {table} AS l
    SET token = free.number,
        grant_id = :grant,
        holder = :holder,
        key = :text,
        pattern = :pattern,
        data = :data,
        acquired_at = clock_timestamp(),
        expires_at = {until}
    FROM free
    WHERE l.key_hash = :key AND l.token = free.token AND NOT l.is_kept AND free.may_be_granted AND {make_durable}
    RETURNING l.token
)
SELECT GREATEST(free.number, free.token), CAST(CASE WHEN granted.token IS NULL THEN -1 ELSE 0 END AS int8), CAST(0 AS int8)
FROM free
LEFT JOIN granted ON true
