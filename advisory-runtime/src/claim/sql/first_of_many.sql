-- Locks no more rows than asked for: the server locks each as it is fetched. The literal in `first` tells the planner that they are few,
-- which it would not expect of a parameter.
SELECT advisory_first.* FROM ({first}) AS advisory_first LIMIT CAST(:limit AS int8)
