-- The claimed rows of a table, with their primary keys. $1 is the table's quoted name. A time
-- without a zone is in UTC. 1114 is the OID of `timestamp`.
SELECT
    (
        SELECT string_agg(jsonb_extract_path_text(to_jsonb(t.*), a.attname::text), ', ' ORDER BY k.n)
        FROM pg_catalog.pg_index AS i
        CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, n)
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE i.indisprimary AND i.indrelid = to_regclass($1)
    ) AS key,
    t.{by}::text AS locked_by,
    CASE
        WHEN isfinite(l.until)
        THEN (date_part('epoch', l.until - clock_timestamp()) * 1000000::float8)::int8
        WHEN l.until < clock_timestamp() THEN -9223372036854775807
    END AS remaining
FROM {table} AS t
CROSS JOIN LATERAL (
    SELECT CASE WHEN pg_typeof(t.{until})::oid = 1114::oid
        THEN timezone('UTC', t.{until}::timestamp) ELSE t.{until}::timestamptz END AS until
) AS l
WHERE t.{until} IS NOT NULL{ends}
ORDER BY t.{until}
LIMIT 1000
