-- Ends claims like `end_all.sql`, without the select that locks their rows, which costs as much as the change. Each claim must last for
-- longer than the statement may take, and a locked row ends the statement.
WITH advisory_claim AS (
    SELECT * FROM ROWS FROM (:keys, unnest(:holders){values}) WITH ORDINALITY AS asked ({asked_columns}, holder{value_columns}, nth)
){statements}
{ended}
