-- Deletes the row of a claim like `end_at_once.sql`.
DELETE FROM {table}
WHERE ({key}) = (:key) AND {locked_by} = {holder} AND {locked_until} > ({clock} + CAST('{prompt} ms' AS interval)) AND {make_durable}
RETURNING {fail_if_waited}
