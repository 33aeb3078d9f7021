-- Moves the sequence past every token that was granted or drawn, in the server's timeline. The next
-- number is the last one, converted into that timeline, if the conversion changes it, because then
-- nobody was granted it; otherwise it is the one after the last.
--
-- The statement that draws a number also writes the table. So this lock keeps numbers from being
-- drawn between the readings and `setval`, which could set the sequence back. The inner `setval`
-- fails if the next number is beyond the sequence's end.
LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE;
SELECT setval({sequence}, setval({sequence}, {next}, false) - 1)
FROM (
    SELECT GREATEST(pg_sequence_last_value({sequence}), (SELECT max(token) FROM {table})) AS number
) AS last
WHERE last.number IS NOT NULL
