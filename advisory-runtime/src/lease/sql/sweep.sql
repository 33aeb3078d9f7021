-- Removes expired rows, except those whose token the sequence has not reached, because they show
-- that the sequence is behind. It skips locked rows, and does not wait for the disk.
DELETE FROM {table}
WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM {table}
        WHERE expires_at <= clock_timestamp() AND token <= (SELECT pg_sequence_last_value({sequence}))
        LIMIT :limit
        FOR UPDATE SKIP LOCKED
    ))
    AND {do_not_wait_for_disk}
