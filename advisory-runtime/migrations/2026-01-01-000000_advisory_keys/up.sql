-- Functions that compute in SQL the keys that `advisory_runtime` locks, so that other programs can
-- take the same locks. PostgreSQL 15 to 18.
--
-- They are created in the first schema of the `search_path`. If this fails with "function … already
-- exists" (42723), a function of that name and signature exists already, perhaps one of a recipe:
-- see what it computes and who calls it, then drop it or rename it. Nothing is ever replaced.
--
-- Only the owner and superusers may call them. Grant each one to the roles that need it; none needs
-- another:
--     GRANT EXECUTE ON FUNCTION advisory_key(text), advisory_escape(text) TO worker;
-- PUBLIC may not call them, because HTTP gateways publish every function that their role may call,
-- and a caller that can lock any key can block everybody who needs it. Where ALTER DEFAULT
-- PRIVILEGES grants new functions to a gateway's roles, revoke those privileges as well.
--
-- The reasons for their design:
-- - Each function is independent: with a fixed `search_path`, none could call another without
--   knowing its schema.
-- - NULL raises 22004. pg_try_advisory_lock(NULL) takes no lock and returns NULL, after which `IF
--   NOT NULL` continues as if the lock were held.
-- - convert_to() is STABLE, because a superuser can replace a conversion. These functions are
--   IMMUTABLE, so that an index or a generated column can contain a key. In a UTF8 database nothing
--   is converted; elsewhere a replaced conversion would change keys.
-- - With COLLATE "C", `lower` changes only A to Z, and `replace` compares bytes. Unicode's tables
--   and a database's collation change between releases and machines; with a changed key, old and
--   new programs would not exclude each other.

-- The key that `advisory_runtime` locks for a rendered text: the first 8 bytes, big-endian, of its
-- SHA-256 in UTF-8.
CREATE FUNCTION advisory_key(rendered pg_catalog.text) RETURNS pg_catalog.int8
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF rendered IS NULL THEN
        RAISE EXCEPTION 'advisory_key: argument "rendered" is NULL' USING ERRCODE = '22004';
    END IF;
    RETURN ('x' OPERATOR(pg_catalog.||) pg_catalog.encode(
        pg_catalog.substring(pg_catalog.sha256(pg_catalog.convert_to(rendered, 'UTF8')), 1, 8),
        'hex'
    ))::pg_catalog.bit(64)::pg_catalog.int8;
END
$$;

-- A text as a placeholder renders it: `%` and `:` are escaped, so that each `:` in a key is one of
-- the pattern.
--     advisory_key('booking:' || advisory_escape(guest))    -- the pattern "booking:<guest>"
CREATE FUNCTION advisory_escape(value pg_catalog.text) RETURNS pg_catalog.text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF value IS NULL THEN
        RAISE EXCEPTION 'advisory_escape: argument "value" is NULL' USING ERRCODE = '22004';
    END IF;
    RETURN pg_catalog.replace(
        pg_catalog.replace(value COLLATE pg_catalog."C", '%', '%25'),
        ':', '%3A'
    );
END
$$;

-- The next four functions have the names, and the parameters' names, of a widely copied recipe,
-- because gateways call functions by name. They compute the same as the recipe, without pgcrypto,
-- except for letters outside ASCII and in a Turkish database: the recipe follows the database's
-- locale, in which 'É' becomes 'é'; here 'É' stays. Programs that use both must pass lower-case
-- text there.

-- The pattern "<email|trim|lower|raw>".
CREATE FUNCTION email_to_lock_id(p_email pg_catalog.text) RETURNS pg_catalog.int8
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_email IS NULL THEN
        RAISE EXCEPTION 'email_to_lock_id: argument "p_email" is NULL' USING ERRCODE = '22004';
    END IF;
    RETURN ('x' OPERATOR(pg_catalog.||) pg_catalog.encode(
        pg_catalog.substring(pg_catalog.sha256(pg_catalog.convert_to(
            pg_catalog.lower(pg_catalog.btrim(p_email) COLLATE pg_catalog."C"),
            'UTF8'
        )), 1, 8),
        'hex'
    ))::pg_catalog.bit(64)::pg_catalog.int8;
END
$$;

-- The pattern "cleanup:<key|trim|lower|raw>" if the namespace is 'cleanup'. The namespace is not
-- escaped: one that contains a `:` can yield a key of another namespace.
CREATE FUNCTION generate_lock_id(p_namespace pg_catalog.text, p_key pg_catalog.text) RETURNS pg_catalog.int8
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_namespace IS NULL THEN
        RAISE EXCEPTION 'generate_lock_id: argument "p_namespace" is NULL' USING ERRCODE = '22004';
    END IF;
    IF p_key IS NULL THEN
        RAISE EXCEPTION 'generate_lock_id: argument "p_key" is NULL' USING ERRCODE = '22004';
    END IF;
    RETURN ('x' OPERATOR(pg_catalog.||) pg_catalog.encode(
        pg_catalog.substring(pg_catalog.sha256(pg_catalog.convert_to(
            p_namespace OPERATOR(pg_catalog.||) ':'
                OPERATOR(pg_catalog.||) pg_catalog.lower(pg_catalog.btrim(p_key) COLLATE pg_catalog."C"),
            'UTF8'
        )), 1, 8),
        'hex'
    ))::pg_catalog.bit(64)::pg_catalog.int8;
END
$$;

-- Takes the session-level lock on email_to_lock_id(p_email) if it is free, and returns whether it
-- did. The lock is held until this session has released it as often as it took it, or ends; a
-- rollback does not release it.
--
-- Neither function raises a NOTICE: the log would then contain the number, with which somebody who
-- guesses an address can confirm the guess.
CREATE FUNCTION acquire_cleanup_lock(p_email pg_catalog.text) RETURNS pg_catalog.bool
    LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_email IS NULL THEN
        RAISE EXCEPTION 'acquire_cleanup_lock: argument "p_email" is NULL' USING ERRCODE = '22004';
    END IF;
    RETURN pg_catalog.pg_try_advisory_lock(('x' OPERATOR(pg_catalog.||) pg_catalog.encode(
        pg_catalog.substring(pg_catalog.sha256(pg_catalog.convert_to(
            pg_catalog.lower(pg_catalog.btrim(p_email) COLLATE pg_catalog."C"),
            'UTF8'
        )), 1, 8),
        'hex'
    ))::pg_catalog.bit(64)::pg_catalog.int8);
END
$$;

-- Releases the lock that acquire_cleanup_lock took in this session. Returns false, with a warning
-- of PostgreSQL's that contains no number, if this session does not hold it: then the work ran
-- without the lock, or another session of a pool still holds it.
CREATE FUNCTION release_cleanup_lock(p_email pg_catalog.text) RETURNS pg_catalog.bool
    LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_email IS NULL THEN
        RAISE EXCEPTION 'release_cleanup_lock: argument "p_email" is NULL' USING ERRCODE = '22004';
    END IF;
    RETURN pg_catalog.pg_advisory_unlock(('x' OPERATOR(pg_catalog.||) pg_catalog.encode(
        pg_catalog.substring(pg_catalog.sha256(pg_catalog.convert_to(
            pg_catalog.lower(pg_catalog.btrim(p_email) COLLATE pg_catalog."C"),
            'UTF8'
        )), 1, 8),
        'hex'
    ))::pg_catalog.bit(64)::pg_catalog.int8);
END
$$;

-- Returns whether this session holds the lock on a `bigint` key exclusively, for its transaction or
-- for the session. A shared lock does not count, since others can hold it too. A session that waits
-- for the lock does not hold it.
--
-- PostgreSQL has no function that looks up one lock, so this reads all locks of the server: 20 to
-- 30 µs while there are few, 0.2 to 0.4 ms for a thousand, 2 to 3 ms for ten thousand.
-- `pg_lock_status` is in the select list because its rows are not stored first there: with many
-- locks that takes half to three quarters of the time of the view `pg_locks`, which calls it.
-- OFFSET 0 keeps the planner from calling it once for each column.
-- VOLATILE, because a STABLE function with a constant argument is called once per statement,
-- perhaps before the statement takes the lock.
CREATE FUNCTION advisory_holds(key pg_catalog.int8) RETURNS pg_catalog.bool
    LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    high pg_catalog.oid := (key OPERATOR(pg_catalog.>>) 32 OPERATOR(pg_catalog.&) 4294967295::pg_catalog.int8)::pg_catalog.oid;
    low pg_catalog.oid := (key OPERATOR(pg_catalog.&) 4294967295::pg_catalog.int8)::pg_catalog.oid;
    backend pg_catalog.int4 := pg_catalog.pg_backend_pid();
BEGIN
    IF key IS NULL THEN
        RAISE EXCEPTION 'advisory_holds: argument "key" is NULL' USING ERRCODE = '22004';
    END IF;
    RETURN EXISTS (
        SELECT FROM (SELECT pg_catalog.pg_lock_status() AS held OFFSET 0) AS locks
        WHERE (held).objid OPERATOR(pg_catalog.=) low
            AND (held).classid OPERATOR(pg_catalog.=) high
            AND (held).pid OPERATOR(pg_catalog.=) backend
            AND (held).objsubid OPERATOR(pg_catalog.=) 1::pg_catalog.int2
            AND (held).locktype OPERATOR(pg_catalog.=) 'advisory'
            AND (held).mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
            AND (held).granted
    );
END
$$;

-- Raises 55000 unless this session holds the lock on the key exclusively, as advisory_holds()
-- defines it. `lock` is the lock's name in the message. The message does not contain the key, which
-- is an unsalted hash of values.
CREATE FUNCTION advisory_require(key pg_catalog.int8, lock pg_catalog.text) RETURNS pg_catalog.void
    LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED SECURITY INVOKER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    high pg_catalog.oid := (key OPERATOR(pg_catalog.>>) 32 OPERATOR(pg_catalog.&) 4294967295::pg_catalog.int8)::pg_catalog.oid;
    low pg_catalog.oid := (key OPERATOR(pg_catalog.&) 4294967295::pg_catalog.int8)::pg_catalog.oid;
    backend pg_catalog.int4 := pg_catalog.pg_backend_pid();
BEGIN
    IF key IS NULL THEN
        RAISE EXCEPTION 'advisory_require: argument "key" is NULL' USING ERRCODE = '22004';
    END IF;
    IF lock IS NULL THEN
        RAISE EXCEPTION 'advisory_require: argument "lock" is NULL' USING ERRCODE = '22004';
    END IF;
    IF NOT EXISTS (
        SELECT FROM (SELECT pg_catalog.pg_lock_status() AS held OFFSET 0) AS locks
        WHERE (held).objid OPERATOR(pg_catalog.=) low
            AND (held).classid OPERATOR(pg_catalog.=) high
            AND (held).pid OPERATOR(pg_catalog.=) backend
            AND (held).objsubid OPERATOR(pg_catalog.=) 1::pg_catalog.int2
            AND (held).locktype OPERATOR(pg_catalog.=) 'advisory'
            AND (held).mode OPERATOR(pg_catalog.=) 'ExclusiveLock'
            AND (held).granted
    ) THEN
        RAISE EXCEPTION 'this session does not hold the advisory lock "%"', lock USING
            ERRCODE = '55000',
            HINT = 'Take the lock before this statement, in the same session and in exclusive mode. Advisory locks bind only those who take them.';
    END IF;
END
$$;

REVOKE EXECUTE ON FUNCTION
    advisory_key(pg_catalog.text),
    advisory_escape(pg_catalog.text),
    email_to_lock_id(pg_catalog.text),
    generate_lock_id(pg_catalog.text, pg_catalog.text),
    acquire_cleanup_lock(pg_catalog.text),
    release_cleanup_lock(pg_catalog.text),
    advisory_holds(pg_catalog.int8),
    advisory_require(pg_catalog.int8, pg_catalog.text)
FROM PUBLIC;
