-- Checks that the token is current. Renewals change no key column, so this row lock lets them pass. A grant to others locks the whole
-- row, so one since this statement began is noticed.
WITH fenced AS MATERIALIZED (
    SELECT expires_at FROM {table} WHERE {is_ours} AND NOT is_kept AND {is_valid} FOR KEY SHARE
)
SELECT {bound_idle} FROM fenced
