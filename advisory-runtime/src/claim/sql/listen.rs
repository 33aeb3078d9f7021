//! How a worker listens for notifications about its table.

use super::fragments::Fragments;
use crate::claim::table::Claim;

/// One channel for all tables. The payload is the table's number, which a renaming does not change.
pub(in crate::claim) const LISTEN: &str = "LISTEN advisory_claim";

/// Asks for the table's number, which for a partition is that of its root, and whether this
/// connection is its own session, so that notifications reach it; NULL if they do not. `told` is
/// the process id that the connection was told.
pub(in crate::claim) fn number<T: Claim>(told: u32) -> String {
    let mut fragments = Fragments::of::<T>();
    fragments.add("told", told.to_string());
    fragments.fill(
        "SELECT CASE WHEN pg_backend_pid() = {told} OR COALESCE(current_setting('advisory.pooler', true), '') = 'session' \
         THEN CAST(CAST(COALESCE(pg_partition_root(CAST({table_literal} AS regclass)), CAST({table_literal} AS regclass)) \
         AS oid) AS text) END",
    )
}
