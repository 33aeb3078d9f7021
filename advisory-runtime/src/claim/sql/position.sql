-- Reads the position of a row in the order of the claims: the values of its columns by their names.
SELECT CAST(jsonb_build_object({order_values}) AS text) AS position FROM {table} WHERE ({key}) = (:key)
