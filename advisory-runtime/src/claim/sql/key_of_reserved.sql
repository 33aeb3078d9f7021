-- Locks the row with a key, if its value is locked and below its limit.
WITH advisory_room AS MATERIALIZED ({room})
SELECT {columns}
FROM {table}
WHERE ({key}) = (:key)
    AND {is_claimable}{conditions}
    AND EXISTS (SELECT FROM advisory_room WHERE advisory_room.value = {value} AND advisory_room.room > 0)
FOR NO KEY UPDATE
