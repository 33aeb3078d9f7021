-- Without IF EXISTS and CASCADE: if a function is gone, or an index or a view still uses it,
-- somebody has to decide what to do. (PostgreSQL 14 drops a generated column with the function that
-- it calls; later releases refuse.) Locks that are held stay held until their sessions release them
-- or end.
DROP FUNCTION
    advisory_key(pg_catalog.text),
    advisory_escape(pg_catalog.text),
    email_to_lock_id(pg_catalog.text),
    generate_lock_id(pg_catalog.text, pg_catalog.text),
    acquire_cleanup_lock(pg_catalog.text),
    release_cleanup_lock(pg_catalog.text),
    advisory_holds(pg_catalog.int8),
    advisory_require(pg_catalog.int8, pg_catalog.text);
