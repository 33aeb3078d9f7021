-- Renews a claim, or ends it in a transaction. Waits for a locked row, and checks only after the
-- wait whether the claim has expired.
UPDATE {table}
SET {set}{changes}
WHERE ({key}) = (SELECT {key} FROM {table} WHERE ({key}) = (:key) AND {locked_by} = {holder} FOR NO KEY UPDATE)
    AND {locked_until} > {clock}
    AND {make_durable}
RETURNING {answer}
