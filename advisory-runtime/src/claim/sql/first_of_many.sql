-- Locks no more rows than :limit, because the server locks each row as it is fetched. The literal
-- limit in `first.sql` tells the planner that there are few; with a parameter it would expect more.
SELECT advisory_first.* FROM ({first}) AS advisory_first LIMIT CAST(:limit AS int8)
