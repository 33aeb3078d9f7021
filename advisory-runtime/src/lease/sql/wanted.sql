-- Leases that are held or kept, with a text in their holder or label, or with one of these patterns
-- or keys. The clock is read once.
expires_at > (SELECT clock_timestamp())
AND (
    :text IS NULL
    OR strpos(lower(holder), lower(:text)) > 0
    OR strpos(lower(COALESCE(key, pattern, left(encode(key_hash, 'hex'), 16))), lower(:text)) > 0
    OR pattern = ANY (:patterns)
    OR key_hash = ANY (:keys)
)
