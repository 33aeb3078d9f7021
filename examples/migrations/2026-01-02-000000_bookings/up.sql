CREATE TABLE booking (account_id bigint NOT NULL REFERENCES account, day date NOT NULL);
INSERT INTO history SELECT 'bookings' FROM pg_sleep(0.5);
