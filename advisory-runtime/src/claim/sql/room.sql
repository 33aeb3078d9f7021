-- The number of rows of each locked value that may be claimed.
--
-- A statement that began before the expiry of a claim may renew it at this moment. The row is then locked, or no longer expired once
-- it can be locked, and it counts as running. A row that is locked here can no longer be renewed.
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
