,
-- Removes those of 128 rows from a random place of the index that have expired, once in sixteen insertions: if every key is used
-- once, expired rows settle at a seventh of the others. A row with a larger token than the number drawn stays, because it shows that
-- the sequence is behind.
swept AS (
    DELETE FROM {table}
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM {table}
        WHERE ctid = ANY (ARRAY(
                SELECT near.ctid
                FROM free
                CROSS JOIN granted
                CROSS JOIN LATERAL (
                    SELECT l.ctid, l.expires_at, l.token
                    FROM {table} AS l
                    WHERE free.token IS NULL AND granted.token IS NOT NULL AND l.key_hash >= :swept_from
                    ORDER BY l.key_hash
                    LIMIT 128
                ) AS near
                WHERE near.expires_at <= clock_timestamp() AND near.token < granted.token
            ))
            AND expires_at <= clock_timestamp()
        FOR UPDATE SKIP LOCKED
    ))
)
