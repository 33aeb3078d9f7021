CREATE INDEX CONCURRENTLY account_name ON account (name);
