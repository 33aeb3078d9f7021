-- Locks the row of a key if it can be claimed. It waits for a locked row.
SELECT {selected}
FROM {table}
WHERE ({key}) = (:key) AND {is_claimable}{conditions}
FOR NO KEY UPDATE
