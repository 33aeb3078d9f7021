-- Ends claims like `end_all.sql`, but without the select that locks their rows, which costs as much
-- as the change. Each claim must last longer than the statement may take. The statement fails if a
-- row is locked.
WITH advisory_claim AS (
    SELECT * FROM ROWS FROM (:keys, unnest(:holders){values}) WITH ORDINALITY AS asked ({asked_columns}, holder{value_columns}, nth)
){statements}
{ended}
