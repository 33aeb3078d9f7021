-- How transactions have ended that ended claims, without waiting for them: `own` for the transaction that asks, NULL for one that the
-- server does not know, such as after a failover; and who holds the row. What the snapshot does not show yet is in progress.
SELECT
    asked.nth,
    CASE
        WHEN asked.id = pg_current_xact_id_if_assigned() THEN 'own'
        WHEN asked.id > pg_current_xact_id() THEN NULL
        WHEN NOT pg_visible_in_snapshot(asked.id, pg_current_snapshot()) THEN 'in progress'
        ELSE pg_xact_status(asked.id)
    END,
    (SELECT {holder_text} FROM {table} WHERE ({key}) = ({asked_key}))
FROM (
    SELECT {asked_key}, CAST(CAST(asked.transaction AS text) AS xid8) AS id, asked.nth
    FROM ROWS FROM (:keys, unnest(:transactions)) WITH ORDINALITY AS asked ({asked_columns}, transaction, nth)
) AS asked
