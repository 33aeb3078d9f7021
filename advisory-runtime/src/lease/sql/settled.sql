-- How transactions have ended that marked keys as done, without waiting for them: `own` for the transaction that asks, NULL for one
-- that the server does not know, such as after a failover; and whether the row is the grant's and kept, NULL if it is not the
-- grant's. What the snapshot does not show yet is in progress.
SELECT
    asked.nth,
    CASE
        WHEN asked.id = pg_current_xact_id_if_assigned() THEN 'own'
        WHEN asked.id > pg_current_xact_id() THEN NULL
        WHEN NOT pg_visible_in_snapshot(asked.id, pg_current_snapshot()) THEN 'in progress'
        ELSE pg_xact_status(asked.id)
    END,
    (
        SELECT l.is_kept FROM {table} AS l
        WHERE l.key_hash = asked.key_hash AND l.grant_id = asked.grant_id AND l.token = asked.token
    )
FROM (
    SELECT asked.*, CAST(CAST(asked.transaction AS text) AS xid8) AS id
    FROM ROWS FROM (unnest(:keys), unnest(:grants), unnest(:tokens), unnest(:transactions)) WITH ORDINALITY
        AS asked (key_hash, grant_id, token, transaction, nth)
) AS asked
