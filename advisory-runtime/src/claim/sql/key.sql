-- Locks the row with a key if it can be claimed, and waits for a locked row.
SELECT {selected}
FROM {table}
WHERE ({key}) = (:key) AND {is_claimable}{conditions}
FOR NO KEY UPDATE
