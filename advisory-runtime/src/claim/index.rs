//! The index that makes a claim as fast in a large table as in a small one.

use super::sql;
use super::table::Claim;

/// The longest name that PostgreSQL keeps, in bytes.
const LONGEST_NAME: usize = 63;

/// The SQL of the partial index that [`next`](super::next) needs: the order, over pending rows. Print it into a migration.
///
/// Empty if the primary key is enough: without an order and without terminal columns. For a large table in use, write
/// `CREATE INDEX CONCURRENTLY` in a migration that runs outside of a transaction. The index leaves out `locked_until`, so a claim
/// changes no index.
///
/// # Examples
///
/// For `#[claim(order = "priority desc")]` and a table with `completed_at`:
///
/// ```sql
/// CREATE INDEX IF NOT EXISTS "sync_jobs_claim" ON "sync_jobs" ("priority" DESC) WHERE "completed_at" IS NULL;
/// ```
#[must_use]
pub fn indexes<T: Claim>() -> Vec<String> {
    let table = table_name::<T>();
    let mut end = table.len().min(LONGEST_NAME - "_claim".len());
    while !table.is_char_boundary(end) {
        end -= 1;
    }
    let index = sql::index::<T>(&format!("{}_claim", &table[..end]));
    index.into_iter().collect()
}

/// The table's name without its schema.
pub(super) fn table_name<T: Claim>() -> String {
    let quoted = sql::table::<T>();
    let name = quoted.rsplit("\".\"").next().unwrap_or(&quoted);
    name.trim_matches('"').replace("\"\"", "\"")
}
