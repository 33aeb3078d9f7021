-- Deletes the row of a claim. Checks whether it has expired after the wait for the row.
DELETE FROM {table}
WHERE ({key}) = ({held}) AND {until} > {clock} AND {is_durable}
{returning}
