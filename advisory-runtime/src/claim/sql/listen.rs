//! How a worker listens for notifications about its table.

use super::{literal, table};
use crate::claim::table::Claim;

/// One channel for all tables. The payload is the table's number, which a renaming does not change.
pub(in crate::claim) const LISTEN: &str = "LISTEN advisory_claim";

/// Asks for the table's number, which for a partition is that of its root, and whether this connection is its own session, so that notifications reach it; NULL if they do not.
/// `told` is the process id that the connection was told.
pub(in crate::claim) fn number<T: Claim>(told: u32) -> String {
    format!(
        "SELECT CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {told} \
         OR COALESCE(pg_catalog.current_setting('advisory.pooler',true),'') OPERATOR(pg_catalog.=) 'session' \
         THEN CAST(CAST(COALESCE(pg_catalog.pg_partition_root(CAST({table} AS pg_catalog.regclass)),CAST({table} AS pg_catalog.regclass)) \
         AS pg_catalog.oid) AS pg_catalog.text) END",
        table = literal(&table::<T>())
    )
}
