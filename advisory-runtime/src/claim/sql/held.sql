-- Locks the row of a claim, and waits for a locked row.
SELECT {key} FROM {table} WHERE ({key}) = (:key) AND {by} = {holder} FOR NO KEY UPDATE
