-- How many rows of each locked value may be claimed.
--
-- A claim that has expired may be renewed at this moment, by a statement that began before its expiry. Then its row is locked, or no
-- longer expired as soon as it can be locked, and it counts as running. A row that is locked here is no longer renewed.
SELECT
    advisory_value.value,
    ({value_limit} - (SELECT count(*) FROM {table} WHERE {is_claimed} AND {until} IS NOT NULL))
        + (
            SELECT count(*)
            FROM (
                SELECT FROM {table} WHERE {is_claimed} AND {until} <= {clock} FOR NO KEY UPDATE SKIP LOCKED
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
