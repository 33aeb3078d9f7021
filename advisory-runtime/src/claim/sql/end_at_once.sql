-- Ends a claim without the select that waits for the row, which costs as much as the change. So that nobody ends a claim that has
-- expired in the wait, it must last for longer than the statement may wait; `held.sql` decides the rest.
UPDATE {table}
SET {set}{changes}
WHERE ({key}) = (:key) AND {by} = {holder} AND {until} > ({clock} + CAST('{prompt} ms' AS interval)) AND {is_durable}
RETURNING {is_prompt}
