-- Claims the row that `rows` locks. The clock is read after the wait for the row.
UPDATE {table}
SET {claimed}{changes}
WHERE ({key}) = ({rows}) AND {is_durable}
RETURNING {returned}, false, CAST(1 AS int8), {selection}
