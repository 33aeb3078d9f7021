-- Releases the row of any grant of the acquisition, because a caller may not know the token yet. A
-- second release gives the same answer, because the first answer may have been lost. It does not
-- wait for the disk: after a crash that loses it, the lease expires.
UPDATE {table}
SET expires_at = LEAST(expires_at, clock_timestamp()), key = NULL, data = NULL
WHERE key_hash = :key AND grant_id = :grant AND NOT is_kept AND {do_not_wait_for_disk}
