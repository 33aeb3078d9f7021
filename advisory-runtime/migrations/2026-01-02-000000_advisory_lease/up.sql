-- The lease table: a row for each key that is held or kept. PostgreSQL 15 to 18.
--
-- Why it looks as it does:
-- * Fencing tokens come from one sequence, so that a row can be deleted: a later grant of its key has a larger token all the same.
--   The sequence must not cache numbers (`CACHE 1`, the default): a session with numbers in stock would give them out too late.
-- * No column owns the sequence, so `TRUNCATE … RESTART IDENTITY` does not restart it. Logical replication, and `pg_dump --table`, copy
--   the table without it: then set it to a number that is at least as large as the last one of the old server.
-- * The primary key is the SHA-256 of the key's text. `pattern` names the lock. The text itself is there only if the program asks
--   for it, while the key is held.
-- * No index on `expires_at` or `holder`: a renewal writes no index as long as none has a column that changes.
-- * A released lease is one that has expired. Each new row removes expired ones, more of them than it adds.
-- * No CHECK limits a length, which the program does: the server parses each CHECK anew for each statement, and four cost a fifth of it.
-- * Pages are filled (`fillfactor` 100, the default): then they are also cleaned while they are filled, and between two runs of
--   autovacuum the file grows by as little as 30 bytes for each key that is used once. With room left in the pages it was 350.
--
-- Roles that lease need these rights, and no others:
--     GRANT SELECT, INSERT, UPDATE, DELETE ON public.advisory_lease TO worker;
--     GRANT USAGE, UPDATE ON SEQUENCE public.advisory_lease_token TO worker;
-- UPDATE is for a program that moves the sequence: into the timeline of the server, and past the tokens in the table.
CREATE SEQUENCE public.advisory_lease_token;

CREATE TABLE public.advisory_lease (
    key_hash pg_catalog.bytea PRIMARY KEY,
    token pg_catalog.int8 NOT NULL,
    -- A random number: which grant it is. After a failover that forgets grants a token can come twice, this does not.
    grant_id pg_catalog.int8 NOT NULL,
    pattern pg_catalog.text,
    holder pg_catalog.text NOT NULL,
    key pg_catalog.text,
    -- What the holder tells those who read the table, such as a leader's address.
    data pg_catalog.text,
    -- The work is done, and the key stays taken until it expires.
    is_kept pg_catalog.bool NOT NULL DEFAULT false,
    acquired_at pg_catalog.timestamptz NOT NULL,
    expires_at pg_catalog.timestamptz NOT NULL
);
