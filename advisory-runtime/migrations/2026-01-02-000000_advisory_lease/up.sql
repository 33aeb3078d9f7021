-- The lease table: a row for each key that is held or done. PostgreSQL 15 to 18.
--
-- The reasons for its design:
-- - All fencing tokens come from one sequence, so a row can be deleted: a later grant of its key
--   still has a larger token. The sequence must not cache numbers (`CACHE 1`, the default): a
--   session with cached numbers could grant a smaller token later.
-- - No column owns the sequence, so `TRUNCATE … RESTART IDENTITY` does not restart it. Logical
--   replication and `pg_dump --table` copy the table without the sequence: set it to at least the
--   last number of the old server.
-- - The primary key is the SHA-256 of the key's text. `pattern` names the lock. The text itself is
--   stored only if the program asks for it, and only while the key is held.
-- - No index on `expires_at` or `holder`: as long as no index contains a column that changes, a
--   renewal writes no index.
-- - A released lease is an expired one. On average, inserting rows removes more expired rows than
--   it adds.
-- - No CHECK limits the length of a text; the program does. The server parses each CHECK again for
--   every statement, and four of them took a fifth of its time.
-- - Pages are filled (`fillfactor` 100, the default), because a full page is cleaned when the next
--   row is written to it. Between two runs of autovacuum the file grows by 50 to 80 bytes for each
--   key that is used once, and by up to 350 if space is left in the pages or other transactions
--   stay open.
--
-- A role that takes leases needs these privileges, and no others:
--     GRANT SELECT, INSERT, UPDATE, DELETE ON public.advisory_lease TO worker;
--     GRANT USAGE, UPDATE ON SEQUENCE public.advisory_lease_token TO worker;
-- UPDATE lets the program move the sequence: into the server's timeline, and past the tokens in the
-- table.
CREATE SEQUENCE public.advisory_lease_token;

CREATE TABLE public.advisory_lease (
    key_hash pg_catalog.bytea PRIMARY KEY,
    token pg_catalog.int8 NOT NULL,
    -- A random number that identifies the grant. After a failover that loses grants, a token can be
    -- granted twice; this number cannot.
    grant_id pg_catalog.int8 NOT NULL,
    pattern pg_catalog.text,
    holder pg_catalog.text NOT NULL,
    key pg_catalog.text,
    -- Data that the holder publishes, such as a leader's address.
    data pg_catalog.text,
    -- True if the work is done; the key cannot be acquired again until the row expires.
    is_kept pg_catalog.bool NOT NULL DEFAULT false,
    acquired_at pg_catalog.timestamptz NOT NULL,
    expires_at pg_catalog.timestamptz NOT NULL
);
