-- Releases the row of any grant of the acquisition, which also one knows that knows no token yet. A second release gives the same
-- answer, since the first may have been lost. It does not wait for the disk: after a crash that loses it, the lease expires.
UPDATE {table}
SET expires_at = LEAST(expires_at, clock_timestamp()), key = NULL, data = NULL
WHERE key_hash = :key AND grant_id = :grant AND NOT is_kept AND {is_forgettable}
