COALESCE(
    (SELECT {value} FROM {table} WHERE {value} > {after}{and_pending} ORDER BY {value} LIMIT 1),
    (SELECT {value} FROM {table} WHERE {value} IS NOT NULL{and_pending} ORDER BY {value} LIMIT 1)
)
