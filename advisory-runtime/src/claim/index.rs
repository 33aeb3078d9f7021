//! The index that makes a claim as fast in a large table as in a small one.

use super::sql;
use super::table::Claim;

/// The longest name that PostgreSQL keeps, in bytes.
const LONGEST_NAME: usize = 63;

/// The SQL of the partial index that [`next`](super::next) needs: the order, over pending rows.
/// Print it into a migration.
///
/// With `#[claim(per = …)]` there are two more: the order of each value, and the claimed rows of
/// each value, which each claim and each end change. Empty if the primary key is enough: without an
/// order, terminal columns and `per`. For a large table in use, write `CREATE INDEX CONCURRENTLY`
/// in a migration that runs outside of a transaction; if that fails, drop the invalid index that it
/// leaves. The indexes leave out `locked_until`, so without `per` a claim changes no index, and a
/// renewal never does.
///
/// The name ends in a hash of the definition: the table, the order and the terminal columns. Types
/// that agree in these share an index. With another definition the statement creates another index,
/// and the one of the earlier definition stays: every insert into the table still updates
/// it. Drop it when no running program claims by that order.
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

/// The statement that creates an index on a table, whose name is quoted.
pub(super) fn create(table: &str, name: &str, definition: &str) -> String {
    let name = sql::quoted(name);
    format!("CREATE INDEX IF NOT EXISTS {name} ON {table} {definition};")
}

/// `IF NOT EXISTS` compares names only, so the name must follow from the definition.
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

/// The table's name without its schema.
pub(super) fn table_name<T: Claim>() -> String {
    let quoted = sql::table::<T>();
    let name = quoted.rsplit("\".\"").next().unwrap_or(&quoted);
    name.trim_matches('"').replace("\"\"", "\"")
}
