,
-- Once in sixteen insertions, reads 128 rows at a random place of the index, and removes those that
-- have expired. If every key is used once, there is then one expired row for seven others. A row
-- whose token is larger than the number drawn stays, because it shows that the sequence is behind.
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
