-- The row does not precede the position. A comparison of rows lets the scan of the index begin
-- there.
({order_columns}) >= (
    SELECT {position_columns}
    FROM jsonb_populate_record(CAST(NULL AS {table}), CAST(:position AS jsonb)) AS advisory_position
)
