DROP TABLE account;
DROP TABLE history;
