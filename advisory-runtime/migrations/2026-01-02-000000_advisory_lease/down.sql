-- Forgets the last fencing token: a table that is made again grants tokens that were granted before. Revert it only if nothing that
-- was written under a token is left.
DROP TABLE public.advisory_lease;
DROP SEQUENCE public.advisory_lease_token;
