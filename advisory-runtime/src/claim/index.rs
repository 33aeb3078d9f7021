//! The index that makes a claim as fast in a large table as in a small one.

use super::sql::{Index, Named, Parts};
use super::table::Claim;
use diesel::pg::{Pg, PgQueryBuilder};
use diesel::query_builder::{QueryBuilder, QueryFragment};

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
    if !Index::<T>::is_needed() {
        return Vec::new();
    }
    let table = table_name::<T>();
    let mut end = table.len().min(LONGEST_NAME - "_claim".len());
    while !table.is_char_boundary(end) {
        end -= 1;
    }
    let index = Index::<T> {
        parts: Parts::new(),
        name: format!("{}_claim", &table[..end]),
    };
    vec![text(&index) + ";"]
}

/// The table's own name, without its schema.
pub(super) fn table_name<T: Claim>() -> String {
    let quoted = text(&Named::<T>(Parts::new()));
    let name = quoted.rsplit("\".\"").next().unwrap_or(&quoted);
    name.trim_matches('"').replace("\"\"", "\"")
}

fn text(fragment: &impl QueryFragment<Pg>) -> String {
    let mut builder = PgQueryBuilder::default();
    match fragment.to_sql(&mut builder, &Pg) {
        Ok(()) => builder.finish(),
        // Nothing here can fail: there are no values in it.
        Err(error) => format!("-- {error}"),
    }
}
