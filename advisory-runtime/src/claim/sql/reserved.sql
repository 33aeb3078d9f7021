-- The answer of a reservation: the locked values, whether the transaction's snapshot may be too old
-- to count rows, and the time that it waited.
set_config(
    'advisory.claim',
    CASE
        WHEN {is_stale} THEN '{}'
        ELSE COALESCE((SELECT CAST(array_agg(advisory_locked.value) AS text) FROM advisory_locked), '{}')
    END,
    true
) AS locked,
{is_stale} AS is_stale,
CAST(date_part('epoch', clock_timestamp() - statement_timestamp()) * CAST(1000000 AS float8) AS int8) AS waited
