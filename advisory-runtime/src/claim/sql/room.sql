-- The number of rows of each locked value that may be claimed.
--
-- An expired claim may be renewed at this moment, by a statement that began before its expiry. Then
-- its row is locked, or is no longer expired once it can be locked here, and it counts as running.
-- Once the row is locked here, its claim can no longer be renewed.
SELECT
    advisory_value.value,
    ({value_limit} - (SELECT count(*) FROM {table} WHERE {is_claimed} AND {locked_until} IS NOT NULL))
        + (
            SELECT count(*)
            FROM (
                SELECT FROM {table} WHERE {is_claimed} AND {locked_until} <= {clock} FOR NO KEY UPDATE SKIP LOCKED
            ) AS advisory_expired
        ) AS room
FROM (
    SELECT DISTINCT locked.value
    FROM unnest(
        CASE
            WHEN current_setting('advisory.claim', true) <> ''
            THEN CAST(current_setting('advisory.claim', true) AS int8[])
        END
    ) AS locked (value)
) AS advisory_value
