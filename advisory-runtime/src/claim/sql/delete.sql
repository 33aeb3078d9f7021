-- Deletes the row of a claim. Whether it has expired is asked after the wait for the row.
DELETE FROM {table}
WHERE ({key}) = ({held}) AND {until} > {clock} AND {is_durable}
{returning}
