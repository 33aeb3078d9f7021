-- Checks that the token is current. Its row lock lets renewals pass, because they change no key
-- column. A grant to another holder locks the whole row, so this statement notices one that was
-- made after it began.
WITH fenced AS MATERIALIZED (
    SELECT expires_at FROM {table} WHERE {is_ours} AND NOT is_kept AND {is_valid} FOR KEY SHARE
)
SELECT {bound_idle} FROM fenced
