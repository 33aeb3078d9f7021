-- Looks up, without waiting, the outcome of transactions that marked keys as done, and whether the
-- row of each is kept; NULL if the row is another grant's.
SELECT
    asked.nth,
    {outcome},
    (
        SELECT l.is_kept FROM {table} AS l
        WHERE l.key_hash = asked.key_hash AND l.grant_id = asked.grant_id AND l.token = asked.token
    )
FROM (
    SELECT asked.*, CAST(CAST(asked.transaction AS text) AS xid8) AS id
    FROM ROWS FROM (unnest(:keys), unnest(:grants), unnest(:tokens), unnest(:transactions)) WITH ORDINALITY
        AS asked (key_hash, grant_id, token, transaction, nth)
) AS asked
