-- Ends rows that have no attempt left: those of the given keys, and others that are among the first
-- rows that can be claimed.
WITH advisory_first AS MATERIALIZED (
    SELECT {key} FROM {table} WHERE {is_claimable}{from}{conditions} ORDER BY {order} LIMIT {limit}
),
advisory_claim AS MATERIALIZED (
    SELECT {columns}
    FROM {table}
    -- One `ANY`, because the server would make filters of two with `OR`, and read the whole table.
    WHERE ({key}) = ANY (SELECT * FROM advisory_first UNION ALL SELECT * FROM ROWS FROM (:keys) AS met)
        AND {is_spent}
        AND {is_free}
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {table}
SET {set}
FROM advisory_claim
WHERE ({key}) = ({claim_key}) AND (SELECT {make_durable})
