-- Refuses writes to blocks by a session that does not hold the advisory lock 'room-night' in exclusive mode.
-- Key: pattern night:<room: int>:<night: date> by sha256. Written by `cargo advisory migration require`; write it again when the lock's key changes.
-- The trigger runs for each row, after the write, because only then a row has its final values.

DO $advisory$
BEGIN
    IF (SELECT pg_catalog.pg_typeof((room_id)) FROM (SELECT (NULL::blocks).*) AS written)
        OPERATOR(pg_catalog.<>) ALL ('{int2, int4, int8}'::pg_catalog.regtype[]) THEN
        RAISE EXCEPTION 'the column of the placeholder <room> has the type %, and the key needs int2 or int4 or int8',
            (SELECT pg_catalog.pg_typeof((room_id)) FROM (SELECT (NULL::blocks).*) AS written)
            USING ERRCODE = '42804', HINT = 'Write the migration with --column "room=…::int2".';
    END IF;
    IF (SELECT pg_catalog.pg_typeof(written.night) FROM (SELECT (NULL::blocks).*) AS written)
        OPERATOR(pg_catalog.<>) ALL ('{date}'::pg_catalog.regtype[]) THEN
        RAISE EXCEPTION 'the column of the placeholder <night> has the type %, and the key needs date',
            (SELECT pg_catalog.pg_typeof(written.night) FROM (SELECT (NULL::blocks).*) AS written)
            USING ERRCODE = '42804', HINT = 'Write the migration with --column "night=…::date".';
    END IF;
END
$advisory$;

-- Runs with the writer's rights, and needs none: every role may read `pg_lock_status`. It calls nothing outside of pg_catalog.
CREATE FUNCTION advisory_require_blocks_room_night() RETURNS trigger
    LANGUAGE plpgsql VOLATILE SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
    SET TimeZone = 'UTC'
    SET DateStyle = 'ISO'
AS $advisory$
-- advisory guard 1: sha256 pattern night:<room: int>:<night: date>
-- lock: room-night
-- column: room=room_id
#variable_conflict use_column
DECLARE
    new_key int8;
    old_key int8;
    key int8;
    high oid;
    low oid;
BEGIN
    IF TG_OP <> 'DELETE' THEN
        SELECT ('x' || encode(substring(sha256(convert_to(
            ('night:')::text
            || (room_id)::text
            || ':'
            || CASE
                WHEN written.night::timestamp >= '0001-01-01' AND written.night::timestamp < '10000-01-01' THEN to_char(written.night::timestamp, 'YYYY-MM-DD')
                WHEN written.night::timestamp >= '10000-01-01' THEN '+' || to_char(written.night::timestamp, 'YYYY-MM-DD')
                WHEN written.night::timestamp >= '0001-01-01 BC' THEN '0000' || to_char(written.night::timestamp, '-MM-DD')
                ELSE '-' || lpad((-1 - date_part('year', written.night::timestamp))::int4::text, 4, '0') || to_char(written.night::timestamp, '-MM-DD')
            END,
            'UTF8')), 1, 8), 'hex'))::bit(64)::int8
            INTO new_key FROM (SELECT NEW.*) AS written;
        IF new_key IS NULL THEN
            RAISE EXCEPTION 'a column of the key of the advisory lock "%" is NULL', 'room-night' USING
                ERRCODE = '23502', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
        END IF;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        SELECT ('x' || encode(substring(sha256(convert_to(
            ('night:')::text
            || (room_id)::text
            || ':'
            || CASE
                WHEN written.night::timestamp >= '0001-01-01' AND written.night::timestamp < '10000-01-01' THEN to_char(written.night::timestamp, 'YYYY-MM-DD')
                WHEN written.night::timestamp >= '10000-01-01' THEN '+' || to_char(written.night::timestamp, 'YYYY-MM-DD')
                WHEN written.night::timestamp >= '0001-01-01 BC' THEN '0000' || to_char(written.night::timestamp, '-MM-DD')
                ELSE '-' || lpad((-1 - date_part('year', written.night::timestamp))::int4::text, 4, '0') || to_char(written.night::timestamp, '-MM-DD')
            END,
            'UTF8')), 1, 8), 'hex'))::bit(64)::int8
            INTO old_key FROM (SELECT OLD.*) AS written;
    END IF;
    -- A row with NULL in its key, from before the guard, has no lock: it can be deleted, and given a key.
    FOREACH key IN ARRAY ARRAY[new_key, NULLIF(old_key, new_key)] LOOP
        CONTINUE WHEN key IS NULL;
        high := ((key >> 32) & 4294967295)::oid;
        low := (key & 4294967295)::oid;
        IF NOT EXISTS (
            SELECT FROM (SELECT pg_lock_status() AS held OFFSET 0) AS locks
            WHERE (held).objid = low AND (held).classid = high AND (held).pid = pg_backend_pid()
                AND (held).objsubid = 1 AND (held).locktype = 'advisory' AND (held).mode = 'ExclusiveLock' AND (held).granted
        ) THEN
            RAISE EXCEPTION 'this session does not hold the advisory lock "%", which guards the table "%"', 'room-night', TG_TABLE_NAME USING
                ERRCODE = '55000', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME,
                HINT = 'Take the lock before this statement, in the same session and in exclusive mode.';
        END IF;
    END LOOP;
    RETURN NULL;
END
$advisory$;

CREATE TRIGGER advisory_require_room_night
    AFTER INSERT OR UPDATE OR DELETE ON blocks
    FOR EACH ROW EXECUTE FUNCTION advisory_require_blocks_room_night();

-- Partitions have the trigger, later ones too; an inheritance child needs its own.
DO $advisory$
DECLARE
    below record;
BEGIN
    FOR below IN
        WITH RECURSIVE family (oid) AS (
            SELECT 'blocks'::pg_catalog.regclass::pg_catalog.oid
            UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i
                JOIN family AS f ON i.inhparent OPERATOR(pg_catalog.=) f.oid
        )
        SELECT n.nspname, c.relname
        FROM family AS f JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) f.oid
            JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
        WHERE c.oid OPERATOR(pg_catalog.<>) 'blocks'::pg_catalog.regclass AND NOT c.relispartition
    LOOP
        EXECUTE pg_catalog.format(
            'CREATE TRIGGER advisory_require_room_night %s ON %I.%I FOR EACH ROW EXECUTE FUNCTION advisory_require_blocks_room_night()',
            'AFTER INSERT OR UPDATE OR DELETE',
            below.nspname, below.relname);
    END LOOP;
END
$advisory$;
