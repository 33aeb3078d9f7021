-- Frees the key of a row with this token, held or done. `:grant` is a new random
-- number, so no holder matches the row afterwards, even if the server's clock is set back.
WITH own AS MATERIALIZED (
    SELECT key_hash FROM {table} WHERE key_hash = :key AND token = :token AND {is_valid} FOR UPDATE
)
UPDATE {table} AS l
SET grant_id = :grant, key = NULL, data = NULL, is_kept = false, expires_at = clock_timestamp()
FROM own
WHERE l.key_hash = own.key_hash AND l.token = :token AND l.expires_at > clock_timestamp() AND {make_durable}
