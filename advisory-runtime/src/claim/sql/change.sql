-- Renews or ends a claim. Checks whether it has expired after the wait for the row.
UPDATE {table}
SET {set}{changes}
WHERE ({key}) = ({held}) AND {until} > {clock} AND {is_durable}
{returning}
