-- Locks the first rows that can be claimed, and skips locked ones. The limit is a literal, because
-- for a parameter a generic plan would expect a tenth of the table.
SELECT {selected}
FROM {table}
WHERE {is_claimable}{from}{conditions}
ORDER BY {order}
LIMIT {limit}
FOR NO KEY UPDATE SKIP LOCKED
