//! The statements of claims, which are SQL files. In them, `{name}` is replaced by a column or
//! another part that depends on the table, and `:name` by a value. The text depends on the type of
//! row and the form of the statement, never on values, so each form is prepared once.
//!
//! A statement that waits locks its rows first, and reads the clock only then: an `UPDATE` alone
//! computes its expressions before it waits for the row, and a long wait would use up the claim.
//! The select that locks has the conditions too, so a statement that loses writes nothing. Rows are
//! then found by key, not by `ctid`, which changes when a row is updated meanwhile. One end without
//! a message, and many ends, try without that select first, in `end_at_once.sql` and
//! `end_all_at_once.sql`, which fail if they had to wait.
//!
//! The condition for pending rows has no parameters, so a generic plan can use the partial index.
//! The commit waits for the disk. Otherwise a crash could lose a claim, and a second worker would
//! hold the row too, or lose an end, and the job would run twice.

pub(super) mod ends;
mod form;
mod fragments;
pub(super) mod limit;
mod row_type;
mod statement;

use super::table::Claim;
use diesel::QuerySource;
use diesel::pg::{Pg, PgQueryBuilder};
use diesel::query_builder::{QueryBuilder, QueryFragment};
pub(super) use form::{Form, Locked, SpentWay};
use fragments::Fragments;
pub(super) use row_type::{RowType, sets_columns};
pub(super) use statement::{Statement, Value, settled};
use std::borrow::Cow;

/// A condition or columns to set, from the caller.
pub(crate) type Fragment<'a> = Box<dyn QueryFragment<Pg> + Send + Sync + 'a>;

/// The caller's conditions on the rows to claim, and the columns to set.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) key: Option<&'a (dyn QueryFragment<Pg> + Send + Sync)>,
    pub(crate) conditions: &'a [Fragment<'a>],
    pub(crate) changes: &'a [Fragment<'a>],
    /// The position in the order at which the claim begins.
    pub(crate) position: Option<&'a str>,
    /// Skips rows with an expired claim, because this process already runs such a row, which may
    /// kill it.
    pub(crate) skips_expired: bool,
}

/// Writes a text as a literal that does not depend on `standard_conforming_strings`.
pub(super) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        return format!("E'{}'", quoted.replace('\\', "\\\\"));
    }
    format!("'{quoted}'")
}

/// Returns the table's quoted name, with its schema if it has one: `"schema"."table"`.
pub(super) fn table<T: Claim>() -> String {
    let mut builder = PgQueryBuilder::default();
    match T::Table::default().from_clause().to_sql(&mut builder, &Pg) {
        Ok(()) => builder.finish(),
        // A table's name binds no values, so this does not fail.
        Err(error) => format!("-- {error}"),
    }
}

/// Returns the table's name without its schema.
pub(super) fn table_name<T: Claim>() -> String {
    let quoted = table::<T>();
    let name = quoted.rsplit("\".\"").next().unwrap_or(&quoted);
    name.trim_matches('"').replace("\"\"", "\"")
}

/// Replaces NUL, which PostgreSQL's texts cannot contain.
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        return text.replace('\0', "\u{FFFD}").into();
    }
    text.into()
}

/// Listens on one channel for all tables. The payload is the table's oid, which a renaming does not
/// change.
#[cfg(feature = "diesel-async")]
pub(super) const LISTEN: &str = "LISTEN advisory_claim";

/// Returns the query for the table's oid, or for the oid of its root if the table is a partition.
/// Its result is NULL if notifications do not reach this connection, because a pooler gives it
/// another session. `process_id` is the one from the connection's startup.
#[cfg(feature = "diesel-async")]
pub(super) fn number(row: &RowType, process_id: u32) -> String {
    let mut fragments = Fragments::of(row);
    fragments.add("process_id", process_id.to_string());
    fragments.fill(
        "SELECT CASE WHEN pg_backend_pid() = {process_id} OR COALESCE(current_setting('advisory.pooler', true), '') = 'session' \
         THEN CAST(CAST(COALESCE(pg_partition_root(CAST({table_literal} AS regclass)), CAST({table_literal} AS regclass)) \
         AS oid) AS text) END",
    )
}

/// Returns the SQL for the name of a row's state.
pub(super) fn state(row: &RowType) -> String {
    let has_run_at = row.run_at.is_some();
    let is_counted = has_run_at && row.attempts.is_some();
    let (completes, fails) = (row.completed.is_some(), row.failed.is_some());
    let cases = [
        (completes, "{completed} IS NOT NULL", "completed"),
        (fails, "{failed} IS NOT NULL", "failed"),
        (true, "{locked_until} > {clock}", "running"),
        (true, "{locked_until} IS NOT NULL", "expired"),
        (is_counted, "{is_later} AND {counted} > 0", "retrying"),
        (has_run_at, "{is_later}", "scheduled"),
    ];
    let cases = cases.into_iter().filter(|(is_possible, ..)| *is_possible);
    let cases = cases.map(|(_, condition, state)| format!("WHEN {condition} THEN '{state}'"));
    let cases = cases.collect::<Vec<_>>().join(" ");
    let mut fragments = Fragments::of(row);
    let is_later = "{run_at} > {run_at_open}clock_timestamp(){run_at_close}";
    fragments.add("is_later", is_later);
    fragments.fill(&format!("CASE {cases} ELSE 'available' END"))
}
