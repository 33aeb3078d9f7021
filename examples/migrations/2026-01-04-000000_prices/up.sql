ALTER TABLE booking ADD COLUMN price bigint NOT NULL DEFAULT 0;
INSERT INTO history SELECT 'prices' FROM pg_sleep(0.5);
