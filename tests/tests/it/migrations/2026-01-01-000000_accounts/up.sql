-- Waits for the session that has 999: the tests open and close this gate.
SELECT pg_advisory_xact_lock(999);
CREATE TABLE account (id bigint PRIMARY KEY, name text NOT NULL);
INSERT INTO account SELECT number, 'account ' || number FROM generate_series(1, 1000) number;
