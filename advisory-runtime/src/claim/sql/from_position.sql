-- A row that does not stand before {position}. As a comparison of rows it is where the scan of the index begins.
({order_columns}) >= (
    SELECT {position_columns}
    FROM jsonb_populate_record(CAST(NULL AS {table}), CAST(:position AS jsonb)) AS advisory_position
)
