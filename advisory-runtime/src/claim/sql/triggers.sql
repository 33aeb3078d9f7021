-- Returns true if a trigger can remove a changed row from the table or undo its change. The server
-- does not count such a change.
SELECT EXISTS (
    SELECT
    FROM pg_catalog.pg_trigger AS t
    WHERE (t.tgrelid = CAST(CAST({table_literal} AS regclass) AS oid)
            OR t.tgrelid = ANY (SELECT CAST(tree.relid AS oid) FROM pg_partition_tree(CAST({table_literal} AS regclass)) AS tree))
        AND NOT t.tgisinternal
        AND (CAST(t.tgtype AS int4) & 3) = 3
        AND (CAST(t.tgtype AS int4) & 24) > 0
)
