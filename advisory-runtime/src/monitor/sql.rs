//! The monitor's statements.

use crate::sql::qualify::qualify;
#[cfg(feature = "diesel-async")]
use crate::sql::quoted;
use std::sync::LazyLock;

/// Lets a transaction read the activity of sessions again, instead of what it read first.
pub(super) const FRESH: &str = "SELECT pg_catalog.pg_stat_clear_snapshot()";

pub(super) static LOCKS: LazyLock<String> =
    LazyLock::new(|| qualify(include_str!("sql/locks.sql")));

#[cfg(feature = "diesel-async")]
pub(super) static CLAIM_TABLES: LazyLock<String> =
    LazyLock::new(|| qualify(include_str!("sql/claim_tables.sql")));

/// The claimed rows of a table, given by its quoted name.
#[cfg(feature = "diesel-async")]
pub(super) fn claimed(table: &str, locked_until: &str, locked_by: &str, ends: &[String]) -> String {
    let is_open = ends.iter().fold(String::new(), |is_open, end| {
        is_open + " AND t." + &quoted(end) + " IS NULL"
    });
    qualify(&format!(
        include_str!("sql/claimed.sql"),
        table = table,
        until = quoted(locked_until),
        by = quoted(locked_by),
        ends = is_open,
    ))
}
