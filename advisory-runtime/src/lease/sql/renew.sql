-- Renews leases without waiting for locked rows. Returns the number of each lease, whether it was
-- renewed, and if not, whether it was held at the last commit. Another holder's row has another
-- token. A lease is never shortened.
WITH asked AS MATERIALIZED (
    SELECT * FROM ROWS FROM (unnest(:keys), unnest(:grants), unnest(:tokens), unnest(:ttls)) WITH ORDINALITY
        AS asked (key_hash, grant_id, token, ttl, nth)
),
own AS MATERIALIZED (
    SELECT asked.nth, asked.ttl, l.key_hash, l.expires_at AS until
    FROM asked
    JOIN {table} AS l ON l.key_hash = asked.key_hash
    WHERE {is_asked} AND l.expires_at > clock_timestamp()
    FOR NO KEY UPDATE OF l SKIP LOCKED
),
renewed AS (
    UPDATE {table} AS l
    SET expires_at = GREATEST(l.expires_at, clock_timestamp() + (CAST('1 ms' AS interval) * CAST(own.ttl AS float8)))
    FROM own
    WHERE l.key_hash = own.key_hash AND own.until > clock_timestamp() AND (SELECT {make_durable})
    RETURNING own.nth
)
SELECT
    asked.nth,
    renewed.nth IS NOT NULL,
    renewed.nth IS NULL AND EXISTS (
        SELECT FROM {table} AS l
        WHERE l.key_hash = asked.key_hash AND {is_asked} AND l.expires_at > clock_timestamp()
    )
FROM asked
LEFT JOIN renewed ON renewed.nth = asked.nth
