-- Finds out why a statement failed. Returns `true` if the table does not exist, and `false` if the
-- role lacks a right: one that a grant needs (:rights is at least 1), or that moving the sequence
-- needs (:rights is 2). It reads the catalog, because `to_regclass` fails if the role may not use
-- the schema.
SELECT
    CASE
        WHEN t.oid IS NULL THEN true
        WHEN :rights >= 1
            AND NOT (
                has_schema_privilege(n.oid, 'USAGE')
                AND has_table_privilege(t.oid, 'SELECT')
                AND has_table_privilege(t.oid, 'INSERT')
                AND has_table_privilege(t.oid, 'UPDATE')
                AND has_table_privilege(t.oid, 'DELETE')
                AND has_sequence_privilege(s.oid, 'USAGE')
            )
            THEN false
        WHEN :rights >= 2 AND NOT has_sequence_privilege(s.oid, 'UPDATE') THEN false
    END
FROM (SELECT) AS once
LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = CAST('{schema}' AS name)
LEFT JOIN pg_catalog.pg_class AS t ON t.relnamespace = n.oid AND t.relname = CAST('{name}' AS name)
LEFT JOIN pg_catalog.pg_class AS s ON s.relnamespace = n.oid AND s.relname = CAST('{name}_token' AS name)
