//! The index that makes a claim as fast in a large table as in a small one.

use super::sql;
use super::table::Claim;

/// The longest name that the server keeps, in bytes.
const LONGEST_NAME: usize = 63;

/// What to create for [`next`](super::next): a partial index on the order, of the rows that are pending. Print it into a migration.
///
/// Nothing where the key's own index does: without an order and without terminal columns. On a large table that is in use write
/// `CREATE INDEX CONCURRENTLY`, in a migration that runs in no transaction. It has no `locked_until`, so a claim changes no index.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "diesel-async")]
/// # mod jobs {
/// # use advisory_runtime::claim::{self, Claim};
/// # use diesel::prelude::*;
/// # diesel::table! { sync_jobs { id -> BigInt, priority -> Integer, locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text>, completed_at -> Nullable<Timestamptz> } }
/// #[derive(Queryable, Selectable, Claim)]
/// #[diesel(table_name = sync_jobs)]
/// #[claim(order = "priority desc")]
/// struct SyncJob {
///     id: i64,
/// }
///
/// # fn main() {
/// assert_eq!(
///     claim::indexes::<SyncJob>(),
///     [r#"CREATE INDEX IF NOT EXISTS "sync_jobs_claim" ON "sync_jobs" ("priority" DESC) WHERE "completed_at" IS NULL;"#]
/// );
/// # }
/// # pub fn test() { main() }
/// # }
/// # #[cfg(feature = "diesel-async")]
/// # jobs::test();
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

/// The table's own name, without its schema.
pub(super) fn table_name<T: Claim>() -> String {
    let quoted = sql::table::<T>();
    let name = quoted.rsplit("\".\"").next().unwrap_or(&quoted);
    name.trim_matches('"').replace("\"\"", "\"")
}
