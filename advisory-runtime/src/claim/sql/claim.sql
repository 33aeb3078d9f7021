-- Claims the rows that `rows` locks, but at most one with an expired claim, because that row may
-- kill its process.
WITH advisory_claim AS MATERIALIZED (
    SELECT advisory_row.*, row_number() OVER () AS nth FROM ({rows}) AS advisory_row
)
UPDATE {table}
SET {claimed}{changes}
FROM advisory_claim
WHERE ({key}) = ({claim_key})
    AND (advisory_claim.until IS NULL
        OR ({claim_key}) = (SELECT {claim_key} FROM advisory_claim WHERE advisory_claim.until IS NOT NULL LIMIT 1)
        OR {is_spent})
    AND (SELECT {make_durable})
RETURNING {returned}, advisory_claim.until IS NOT NULL, advisory_claim.nth, {selection}
