-- Looks up, without waiting, the outcome of transactions that ended claims, and the holder of each
-- row.
SELECT
    asked.nth,
    {outcome},
    (SELECT {holder_text} FROM {table} WHERE ({key}) = ({asked_key}))
FROM (
    SELECT {asked_key}, CAST(CAST(asked.transaction AS text) AS xid8) AS id, asked.nth
    FROM ROWS FROM (:keys, unnest(:transactions)) WITH ORDINALITY AS asked ({asked_columns}, transaction, nth)
) AS asked
