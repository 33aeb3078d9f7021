-- Claims the row that `rows` locks. Reads the clock after the wait for the row. Each column of the answer takes time.
UPDATE {table}
SET {claimed}{changes}
WHERE ({key}) = ({rows}) AND {make_durable}
RETURNING {returned}, {selection}
