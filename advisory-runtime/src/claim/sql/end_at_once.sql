-- Ends a claim without first selecting its row to wait for it, which costs as much as the change.
-- The claim must last longer than the statement may wait, so that it cannot expire during the wait.
-- Claims that are about to expire are ended by `end_all.sql`.
UPDATE {table}
SET {set}{changes}
WHERE ({key}) = (:key) AND {locked_by} = {holder} AND {locked_until} > ({clock} + CAST('{prompt} ms' AS interval)) AND {make_durable}
RETURNING {fail_if_waited}
