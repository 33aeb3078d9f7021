-- Grants a free key: inserts its row, or changes the one that has expired. If the key is held, it
-- writes nothing.
--
-- The answer is a token, a time, and the session's `lock_timeout`:
--
-- - A token and 0: the key was granted.
-- - A token and a time above 0: an earlier try of this acquisition was granted the key, for this
--   time.
-- - A number and -1: not granted, because the sequence is behind this number or of another
--   timeline.
-- - A token and -2: not granted, because the row is locked or was removed.
-- - No token: the key is held for this time, or done if the time is below 0. At 0 another session
--   is acquiring it.
WITH free AS MATERIALIZED (
    SELECT drawn.*, {may_be_granted} AS may_be_granted
    FROM (
        SELECT
            l.token,
            l.grant_id,
            l.is_kept,
            l.expires_at,
            -- `CASE` guarantees the order: a try that is refused anyway takes no lock.
            CASE
                WHEN l.expires_at > clock_timestamp() THEN NULL
                WHEN pg_try_advisory_xact_lock(:lock) THEN nextval({sequence})
            END AS number
        FROM (SELECT) AS once
        LEFT JOIN {table} AS l ON l.key_hash = :key
    ) AS drawn
),
granted AS (
    INSERT INTO {table} AS l (key_hash, token, grant_id, holder, key, pattern, data, acquired_at, expires_at)
    SELECT :key, free.number, :grant, :holder, :text, :pattern, :data, clock_timestamp(), {until}
    FROM free
    WHERE CASE
            WHEN NOT free.may_be_granted THEN false
            WHEN free.token IS NULL THEN true
            ELSE EXISTS (
                SELECT FROM {table} AS l
                WHERE l.key_hash = :key AND l.expires_at <= clock_timestamp()
                FOR UPDATE SKIP LOCKED
            )
        END
        AND {make_durable}
    -- The key is among the columns, so that this waits for a fence as the lock above would.
    ON CONFLICT (key_hash) DO UPDATE
    SET key_hash = EXCLUDED.key_hash,
        token = EXCLUDED.token,
        grant_id = EXCLUDED.grant_id,
        holder = EXCLUDED.holder,
        key = EXCLUDED.key,
        pattern = EXCLUDED.pattern,
        data = EXCLUDED.data,
        is_kept = false,
        acquired_at = EXCLUDED.acquired_at,
        expires_at = EXCLUDED.expires_at
    WHERE l.expires_at <= clock_timestamp() AND l.token < EXCLUDED.token
    RETURNING l.token
){swept}
SELECT
    CASE
        WHEN free.number IS NOT NULL THEN GREATEST(free.number, free.token)
        WHEN free.expires_at > clock_timestamp() AND free.grant_id = :grant AND NOT free.is_kept THEN free.token
    END,
    CAST(
        CASE
            WHEN granted.token IS NOT NULL THEN 0
            WHEN free.number IS NOT NULL THEN CASE WHEN free.may_be_granted THEN -2 ELSE -1 END
            WHEN free.expires_at > clock_timestamp()
                THEN GREATEST(1, {free_left}) * CAST(CASE WHEN free.is_kept THEN -1 ELSE 1 END AS int8)
            ELSE 0
        END AS int8
    ),
    CASE WHEN granted.token IS NULL THEN {lock_timeout} ELSE 0 END
FROM free
LEFT JOIN granted ON true
