-- How transactions have ended that marked keys as done, without waiting for them, and whether the row is the grant's and kept, NULL if
-- it is not the grant's.
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
