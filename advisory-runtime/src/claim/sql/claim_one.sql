-- Claims the row that `rows` locks. Reads the clock after the wait for the row. Returns only what
-- is needed, because each column slows the statement.
UPDATE {table}
SET {claimed}{changes}
WHERE ({key}) = ({rows}) AND {make_durable}
RETURNING {returned}, {selection}
