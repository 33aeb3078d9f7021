-- Ends a claim without the select that waits for the row, which costs as much as the change. The claim must last for longer
-- than the statement may wait, so that it cannot expire during the wait; `end_all.sql` decides the other cases.
UPDATE {table}
SET {set}{changes}
WHERE ({key}) = (:key) AND {by} = {holder} AND {until} > ({clock} + CAST('{prompt} ms' AS interval)) AND {make_durable}
RETURNING {is_prompt}
