-- Each migration of this example takes half a second, and notes that it ran.
CREATE TABLE history (migration text NOT NULL);
CREATE TABLE account (id bigint PRIMARY KEY, name text NOT NULL);
INSERT INTO history SELECT 'accounts' FROM pg_sleep(0.5);
