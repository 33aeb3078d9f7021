-- Changes the row of a grant. It locks the row first, because an `UPDATE` computes its values
-- before it waits for the row.
WITH own AS MATERIALIZED (
    SELECT key_hash, expires_at AS until FROM {table} WHERE {is_ours} AND {is_valid} FOR NO KEY UPDATE
)
UPDATE {table} AS l
SET {set}
FROM own
WHERE l.key_hash = own.key_hash AND own.until > clock_timestamp() AND {make_durable}
{returning}
