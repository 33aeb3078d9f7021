-- Renews or ends a claim. Whether it has expired is asked after the wait for the row.
UPDATE {table}
SET {set}{changes}
WHERE ({key}) = ({held}) AND {until} > {clock} AND {is_durable}
{returning}
