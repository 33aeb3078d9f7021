-- Renews claims without waiting for locked rows. Returns the number of each claim and, if it was
-- renewed, the time that it lasts; otherwise, whether it was held at the last commit.
WITH asked AS MATERIALIZED (
    SELECT * FROM ROWS FROM (:keys, unnest(:holders)) WITH ORDINALITY AS asked ({asked_columns}, holder, nth)
),
advisory_claim AS MATERIALIZED (
    SELECT asked.nth, {columns}
    FROM asked
    JOIN {table} ON ({key}) = ({asked_key}) AND {locked_by} = {asked_holder}
    WHERE {locked_until} > {clock}
    FOR NO KEY UPDATE OF {table_name} SKIP LOCKED
),
renewed AS (
    UPDATE {table}
    SET {set}
    FROM advisory_claim
    WHERE ({key}) = ({claim_key}) AND advisory_claim.until > {clock} AND (SELECT {make_durable})
    RETURNING advisory_claim.nth, {lasts} AS lasts
)
SELECT
    asked.nth,
    renewed.lasts,
    renewed.nth IS NULL AND EXISTS (
        SELECT FROM {table} WHERE ({key}) = ({asked_key}) AND {locked_by} = {asked_holder} AND {locked_until} > {clock}
    )
FROM asked
LEFT JOIN renewed ON renewed.nth = asked.nth
