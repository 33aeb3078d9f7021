-- The lease table: one row for each key that was ever leased. PostgreSQL 14 to 18.
--
-- Why it looks as it does:
-- * A row is never deleted: it holds the key's fencing token, which grows for ever. A holder that was stopped and wakes up has a
--   smaller one, and storage refuses it; a token that begins anew would let it through. So DELETE and TRUNCATE are refused.
-- * The primary key is the SHA-256 of the key's text. The text itself is there only where the program asks for it, while it is held.
-- * No index on `expires_at` or `holder`: each renewal writes a row, and writes no index as long as none has a column that changes.
-- * A released lease is one that has expired.
--
-- Roles that lease need SELECT, INSERT and UPDATE, and nothing else:
--     GRANT SELECT, INSERT, UPDATE ON public.advisory_lease TO worker;
CREATE TABLE public.advisory_lease (
    key_hash pg_catalog.bytea PRIMARY KEY CHECK (pg_catalog.octet_length(key_hash) OPERATOR(pg_catalog.=) 32),
    fence pg_catalog.int8 NOT NULL CHECK (fence OPERATOR(pg_catalog.>) 0),
    -- Which grant it is, at random: after a fail-over that forgets grants a token can come twice, this does not.
    grant_id pg_catalog.int8 NOT NULL,
    holder pg_catalog.text NOT NULL CHECK (pg_catalog.octet_length(holder) OPERATOR(pg_catalog.<=) 255),
    key pg_catalog.text CHECK (pg_catalog.octet_length(key) OPERATOR(pg_catalog.<=) 512),
    acquired_at pg_catalog.timestamptz NOT NULL,
    expires_at pg_catalog.timestamptz NOT NULL
) WITH (fillfactor = 70);

CREATE FUNCTION public.advisory_lease_stays() RETURNS pg_catalog.trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never deleted: each holds a fencing token, which must not begin anew', TG_TABLE_NAME
        USING ERRCODE = '55000';
END
$$;

CREATE TRIGGER stays BEFORE DELETE OR TRUNCATE ON public.advisory_lease
    FOR EACH STATEMENT EXECUTE FUNCTION public.advisory_lease_stays();
