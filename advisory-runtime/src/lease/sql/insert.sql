-- Grants a key whose row was locked or removed while it was acquired. It waits for a transaction
-- that removes the row. If another one has locked the row, it does not wait, because the key is
-- held. The answer is like that of `acquire.sql`.
WITH free AS MATERIALIZED (
    SELECT drawn.*, {may_be_granted} AS may_be_granted
    FROM (
        SELECT CAST(NULL AS int8) AS token, nextval({sequence}) AS number
        WHERE pg_try_advisory_xact_lock(:lock)
    ) AS drawn
),
granted AS (
    INSERT INTO {table} (key_hash, token, grant_id, holder, key, pattern, data, acquired_at, expires_at)
    SELECT :key, free.number, :grant, :holder, :text, :pattern, :data, clock_timestamp(), {until}
    FROM free
    WHERE CASE
            WHEN free.may_be_granted
                THEN NOT EXISTS (SELECT FROM {table} AS l WHERE l.key_hash = :key FOR KEY SHARE SKIP LOCKED)
            ELSE false
        END
        AND {make_durable}
    ON CONFLICT DO NOTHING
    RETURNING token
)
SELECT
    CASE WHEN granted.token IS NOT NULL OR NOT free.may_be_granted THEN free.number END,
    CAST(CASE WHEN granted.token IS NULL AND NOT free.may_be_granted THEN -1 ELSE 0 END AS int8),
    {lock_timeout}
FROM (SELECT) AS once
LEFT JOIN free ON true
LEFT JOIN granted ON true
