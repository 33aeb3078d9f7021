-- Ends claims. It does not wait for locked rows if there are several claims. Returns the numbers of
-- the claims that were held and whose rows were not locked, or the id of the caller's transaction.
-- A row that a trigger removes from the table counts as ended.
WITH asked AS MATERIALIZED (
    SELECT * FROM ROWS FROM (:keys, unnest(:holders){values}) WITH ORDINALITY AS asked ({asked_columns}, holder{value_columns}, nth)
),
advisory_locked AS MATERIALIZED (
    SELECT asked.*, {locked_until} AS until
    FROM asked
    JOIN {table} ON ({key}) = ({asked_key}) AND {locked_by} = {asked_holder}
    WHERE {locked_until} > {clock}
    FOR {lock} OF {table_name}{skip_locked}
),
advisory_claim AS MATERIALIZED (
    SELECT * FROM advisory_locked WHERE advisory_locked.until > {clock} AND (SELECT {make_durable})
){statements}
SELECT {answer} FROM advisory_claim
