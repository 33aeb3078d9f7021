//! The statements of a worker that listens for notifications about its table.

use super::fragments::Fragments;
use super::row_type::RowType;

/// Listens on one channel for all tables. The payload is the table's oid, which a renaming does not
/// change.
pub(in crate::claim) const LISTEN: &str = "LISTEN advisory_claim";

/// Returns the query for the table's oid, or for the oid of its root if the table is a partition.
/// Its result is NULL if notifications do not reach this connection, because a pooler gives it
/// another session. `process_id` is the one from the connection's startup.
pub(in crate::claim) fn number(row: &RowType, process_id: u32) -> String {
    let mut fragments = Fragments::of(row);
    fragments.add("process_id", process_id.to_string());
    fragments.fill(
        "SELECT CASE WHEN pg_backend_pid() = {process_id} OR COALESCE(current_setting('advisory.pooler', true), '') = 'session' \
         THEN CAST(CAST(COALESCE(pg_partition_root(CAST({table_literal} AS regclass)), CAST({table_literal} AS regclass)) \
         AS oid) AS text) END",
    )
}
