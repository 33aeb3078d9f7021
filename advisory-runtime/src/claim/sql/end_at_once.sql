-- Ends a claim without first selecting its row to wait for it, which costs as much as the change.
-- The claim must last longer than the statement may wait, so that it cannot expire during the wait.
-- `end_all.sql` ends the other claims.
UPDATE {table}
SET {set}{changes}
WHERE ({key}) = (:key) AND {by} = {holder} AND {until} > ({clock} + CAST('{prompt} ms' AS interval)) AND {make_durable}
RETURNING {is_prompt}
