-- Claims the row that `rows` locks. The clock is read after the wait for the row. Each column of the answer costs.
UPDATE {table}
SET {claimed}{changes}
WHERE ({key}) = ({rows}) AND {is_durable}
RETURNING {returned}, {selection}
