//! The index that makes a claim as fast in a large table as in a small one.

use super::sql;
use super::table::Claim;

/// The length to which PostgreSQL cuts names, in bytes.
const LONGEST_NAME: usize = 63;

/// Returns the SQL of the partial index that [`next`](super::next) needs: pending rows in the order
/// of the claims. Print it into a migration.
///
/// With `#[claim(per = …)]` there are two more indexes: the order of each value, and the claimed
/// rows of each value, which each claim and each end change. Without an order, terminal columns and
/// `per`, there are none, because the primary key is enough. No index contains `locked_until`, so
/// without `per` a claim changes no index, and a renewal never does.
///
/// For a large table in use, write `CREATE INDEX CONCURRENTLY` in a migration that runs outside of
/// a transaction. If that fails, drop the invalid index that it leaves.
///
/// The name ends in a hash of the definition: the table, the order and the terminal columns. Types
/// with one definition share an index. If the definition changes, the statement creates another
/// index, and every insert still updates the earlier one. Drop the earlier one when no running
/// program claims by its order.
///
/// # Examples
///
/// For `#[claim(order = "priority desc")]` and a table with `completed_at`:
///
/// ```sql
/// CREATE INDEX IF NOT EXISTS "sync_jobs_claim_1a0252c5" ON "sync_jobs" ("priority" DESC) WHERE "completed_at" IS NULL;
/// ```
///
/// Printed into a migration:
///
/// ```
#[doc = example_of_jobs!()]
/// for statement in advisory_runtime::claim::indexes::<Job>() {
///     println!("{statement}");
/// }
/// ```
#[must_use]
pub fn indexes<T: Claim>() -> Vec<String> {
    let definitions = sql::index::<T>()
        .into_iter()
        .chain(sql::limit::indexes::<T>());
    let indexes = definitions.map(|definition| {
        let name = name(&table_name::<T>(), &definition);
        create(&sql::table::<T>(), &name, &definition)
    });
    indexes.collect()
}

/// Returns the statement that creates an index. `table` is quoted.
pub(super) fn create(table: &str, name: &str, definition: &str) -> String {
    let name = sql::quoted(name);
    format!("CREATE INDEX IF NOT EXISTS {name} ON {table} {definition};")
}

/// Returns the name of an index. It depends on the definition, because `IF NOT EXISTS` compares
/// only names.
pub(super) fn name(table: &str, definition: &str) -> String {
    let hash = advisory_pattern::sha256(&format!("{} {definition}", sql::quoted(table)));
    let suffix = format!(
        "_claim_{:08x}",
        u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
    );
    let mut end = table.len().min(LONGEST_NAME - suffix.len());
    while !table.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &table[..end])
}

/// Returns the table's name without its schema.
pub(super) fn table_name<T: Claim>() -> String {
    let quoted = sql::table::<T>();
    let name = quoted.rsplit("\".\"").next().unwrap_or(&quoted);
    name.trim_matches('"').replace("\"\"", "\"")
}
