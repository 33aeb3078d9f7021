-- Locks no more rows than asked for: the server locks each as it is fetched. The literal in `first` tells the planner that
-- they are few; for a parameter it would expect more.
SELECT advisory_first.* FROM ({first}) AS advisory_first LIMIT CAST(:limit AS int8)
