//! How a worker is woken up: the channel, the statements of who listens, and the trigger that notifies.

use super::{literal, quoted, table};
use crate::claim::table::Claim;

/// The channel of the notifications about all tables. The payload is the table's number, which a renaming does not change.
const CHANNEL: &str = "advisory_claim";

pub(in crate::claim) const LISTEN: &str = "LISTEN advisory_claim";

/// Asks for the table's number, and whether this connection is its own session, so that notifications reach it; NULL if they do not.
/// `told` is the process id that the connection was told.
pub(in crate::claim) fn number<T: Claim>(told: u32) -> String {
    format!(
        "CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {told} \
         OR COALESCE(pg_catalog.current_setting('advisory.pooler',true),'') OPERATOR(pg_catalog.=) 'session' \
         THEN CAST(CAST(CAST({} AS pg_catalog.regclass) AS pg_catalog.oid) AS pg_catalog.text) END",
        literal(&table::<T>())
    )
}

/// The function that every table's triggers call.
pub(in crate::claim) const FUNCTION: &str = "\
CREATE OR REPLACE FUNCTION advisory_claim_notify() RETURNS trigger LANGUAGE plpgsql SET search_path TO 'pg_catalog', 'pg_temp' AS $$
BEGIN
    PERFORM pg_catalog.pg_notify('advisory_claim', CAST(CAST(TG_RELID AS pg_catalog.oid) AS pg_catalog.text));
    RETURN NULL;
END $$;
";

/// The triggers of a table: rows that come in, and rows that are released or retried.
pub(in crate::claim) fn triggers(table: &str, locked_by: &str) -> String {
    debug_assert!(FUNCTION.contains(CHANNEL), "the worker listens to it");
    let locked_by = quoted(locked_by);
    format!(
        "CREATE OR REPLACE TRIGGER advisory_claim_inserted AFTER INSERT ON {table}\n    \
         FOR EACH STATEMENT EXECUTE FUNCTION advisory_claim_notify();\n\
         CREATE OR REPLACE TRIGGER advisory_claim_released AFTER UPDATE OF {locked_by} ON {table}\n    \
         FOR EACH ROW WHEN (OLD.{locked_by} IS NOT NULL AND NEW.{locked_by} IS NULL)\n    \
         EXECUTE FUNCTION advisory_claim_notify();\n"
    )
}
