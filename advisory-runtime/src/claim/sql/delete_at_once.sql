-- Deletes the row of a claim like `end_at_once.sql`.
DELETE FROM {table}
WHERE ({key}) = (:key) AND {by} = {holder} AND {until} > ({clock} + CAST('{prompt} ms' AS interval)) AND {make_durable}
RETURNING {is_prompt}
