-- What is held or kept and has a text in its holder or its label, or is among these patterns or keys. The clock is read once.
expires_at > (SELECT clock_timestamp())
AND (
    :text IS NULL
    OR strpos(lower(holder), lower(:text)) > 0
    OR strpos(lower(COALESCE(key, pattern, left(encode(key_hash, 'hex'), 16))), lower(:text)) > 0
    OR pattern = ANY (:patterns)
    OR key_hash = ANY (:keys)
)
