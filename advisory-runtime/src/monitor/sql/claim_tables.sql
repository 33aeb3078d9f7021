-- The schemas that have a table of the name $1 with the columns $2 and $3.
SELECT n.nspname::text AS schema, pg_table_is_visible(c.oid) AS is_visible
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relname = $1 AND c.relkind = ANY ('{r,p,v,f}') AND (
    SELECT count(*) FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = c.oid AND NOT a.attisdropped AND (a.attname = $2 OR a.attname = $3)
) = 2
ORDER BY schema
