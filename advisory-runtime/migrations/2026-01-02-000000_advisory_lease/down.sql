-- Loses the last fencing token: a table that is created again grants tokens that were granted
-- before. Revert this migration only if nothing that was written with a token is left.
DROP TABLE public.advisory_lease;
DROP SEQUENCE public.advisory_lease_token;
