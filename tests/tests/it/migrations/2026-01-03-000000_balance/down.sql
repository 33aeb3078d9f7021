ALTER TABLE account DROP COLUMN balance;
