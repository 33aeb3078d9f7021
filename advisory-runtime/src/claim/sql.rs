//! Every statement of claims. Its text is fixed for a type of row, so each is prepared once.
//!
//! Each locks its rows first, in a materialized `WITH`, and reads the clock only then: an `UPDATE` alone computes its expressions
//! before it waits for the row, and a long wait would use up the claim. The `WITH` has the conditions too, so a statement that
//! loses writes nothing. Rows are then found by key, not by `ctid`, which changes when a row is updated meanwhile.
//!
//! The condition for pending rows has no parameters, so a generic plan can use the partial index.

use super::table::{Claim, KeyColumns, MaybeColumn, ttl};
use crate::renewal::{DURABLE, micros};
use diesel::pg::{Pg, PgQueryBuilder};
use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Text, Untyped};
use diesel::{Column, QueryResult, QuerySource};
use std::borrow::Cow;

const NOW: &str = "pg_catalog.clock_timestamp()";

/// A statement. In its text a mark replaces each value: NUL, which no name contains, and a letter.
pub(super) struct Statement<'a, T: Claim, K> {
    text: String,
    key: K,
    ttl: i64,
    /// The worker's name, or the claim's own `locked_by`.
    by: Cow<'a, str>,
    selection: T::Selection,
    message: &'a str,
    changes: Option<Changes<'a>>,
}

/// How a claim ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum How<'a> {
    Complete,
    Fail(&'a str),
    Release,
}

/// The caller's columns to set: one of Diesel's changesets.
pub(super) type Changes<'a> = &'a (dyn QueryFragment<Pg> + Send + Sync);

impl<'a, T: Claim> Statement<'a, T, ()> {
    /// Claims the first rows, and skips locked ones.
    ///
    /// The limit is a literal: a generic plan would assume that a parameter is a tenth of the table.
    pub(super) fn next(worker: &'a str, limit: u32) -> Self {
        let names = Names::of::<T>();
        let rows = format!(
            "{}{} ORDER BY {} LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED",
            names.locked::<T>(),
            names.unclaimed::<T>(),
            order::<T>(|column| names.column(column)),
        );
        Self::new(names.taken::<T>(&rows), (), text(worker))
    }
}

impl<'a, T: Claim, K> Statement<'a, T, K> {
    fn new(text: String, key: K, by: Cow<'a, str>) -> Self {
        Self {
            text,
            key,
            ttl: i64::try_from(ttl::<T>().as_millis()).unwrap_or(i64::MAX),
            by,
            selection: T::selection(),
            message: "",
            changes: None,
        }
    }

    /// Claims the row of a key.
    pub(super) fn by_key(worker: &'a str, key: K) -> Self {
        let names = Names::of::<T>();
        let rows = format!(
            "{}{} AND {} FOR NO KEY UPDATE",
            names.locked::<T>(),
            names.is_key::<T>("\0k"),
            names.unclaimed::<T>(),
        );
        Self::new(names.taken::<T>(&rows), key, text(worker))
    }

    /// Renews a claim.
    pub(super) fn renew(locked_by: &'a str, key: K) -> Self {
        let names = Names::of::<T>();
        let text = names.change::<T>(&names.now_and_ttl::<T>());
        Self::new(text, key, locked_by.into())
    }

    /// Reads which claim holds the row, if any. It waits for a transaction that has changed the row.
    pub(super) fn holder(key: K) -> Self {
        let names = Names::of::<T>();
        let (table, by, is_key) = (&names.table, &names.by, names.is_key::<T>("\0k"));
        let text =
            format!("SELECT {by} FROM {table} WHERE {is_key} AND {by} IS NOT NULL FOR SHARE");
        Self::new(text, key, "".into())
    }

    /// Ends a claim.
    pub(super) fn finish(
        locked_by: &'a str,
        key: K,
        how: How<'a>,
        changes: Option<Changes<'a>>,
    ) -> Self {
        let at = match how {
            How::Complete => T::CompletedAt::COLUMN,
            How::Fail(_) => T::FailedAt::COLUMN,
            How::Release => None,
        };
        let at = at.map(|column| format!(", {} = {NOW}", quoted(column)));
        let (why, message) = match (how, T::ErrorMessage::COLUMN) {
            (How::Fail(why), Some(column)) => (format!(", {} = \0m", quoted(column)), why),
            _ => (String::new(), ""),
        };
        let (by, at) = (quoted(T::LockedBy::NAME), at.unwrap_or_default());
        let text = Names::of::<T>().change::<T>(&format!("NULL, {by} = NULL{at}{why}\0c"));
        Self {
            message,
            changes,
            ..Self::new(text, key, locked_by.into())
        }
    }
}

impl<T: Claim, K: QueryFragment<Pg>> QueryFragment<Pg> for Statement<'_, T, K> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let mut parts = self.text.split('\0');
        out.push_sql(parts.next().unwrap_or_default());
        for part in parts {
            let (mark, rest) = part.split_at(1);
            match mark {
                "t" => out.push_bind_param::<BigInt, _>(&self.ttl)?,
                "b" => out.push_bind_param::<Text, _>(&self.by)?,
                "m" => out.push_bind_param::<Text, _>(self.message)?,
                "s" => self.selection.walk_ast(out.reborrow())?,
                "c" => {
                    if let Some(changes) = self.changes
                        && !changes.is_noop(&Pg)?
                    {
                        out.push_sql(", ");
                        changes.walk_ast(out.reborrow())?;
                    }
                }
                _ => self.key.walk_ast(out.reborrow())?,
            }
            out.push_sql(rest);
        }
        Ok(())
    }
}

impl<T: Claim, K> Query for Statement<'_, T, K> {
    type SqlType = Untyped;
}

/// Prepared by its text and not by its type, as Diesel's own updates are.
impl<T: Claim, K> QueryId for Statement<'_, T, K> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// Qualified names: `"schema"."table"."column"`.
struct Names {
    table: String,
    until: String,
    by: String,
}

impl Names {
    fn of<T: Claim>() -> Self {
        let table = table::<T>();
        Self {
            until: format!("{table}.{}", quoted(T::LockedUntil::NAME)),
            by: format!("{table}.{}", quoted(T::LockedBy::NAME)),
            table,
        }
    }

    fn column(&self, name: &str) -> String {
        format!("{}.{}", self.table, quoted(name))
    }

    /// The end of a claim that begins now: `\0t` is the ttl in milliseconds.
    ///
    /// A column with a precision, such as `timestamptz(0)`, rounds to the nearest value. So that it never rounds down, half a unit
    /// less a microsecond is added; the precision is the column's `atttypmod`, and -1 without one.
    fn now_and_ttl<T: Claim>(&self) -> String {
        format!(
            "{NOW} OPERATOR(pg_catalog.+) ((CAST(\0t AS pg_catalog.float8) OPERATOR(pg_catalog.+) COALESCE((SELECT \
             (CAST('{{499.999,49.999,4.999,0.499,0.049,0.004}}' AS pg_catalog.float8[]))[a.atttypmod OPERATOR(pg_catalog.+) 1] \
             FROM pg_catalog.pg_attribute AS a WHERE a.attrelid OPERATOR(pg_catalog.=) CAST({} AS pg_catalog.regclass) \
             AND a.attname OPERATOR(pg_catalog.=) CAST({} AS pg_catalog.name)),CAST(0 AS pg_catalog.float8))) \
             OPERATOR(pg_catalog.*) CAST('1 ms' AS pg_catalog.interval))",
            literal(&self.table),
            literal(T::LockedUntil::NAME)
        )
    }

    /// The beginning of the `WITH` that locks the rows. The commit waits for the disk: a claim lost in a crash would be held twice,
    /// and a job whose end is lost would be done twice.
    fn locked<T: Claim>(&self) -> String {
        let keys = T::Key::NAMES.iter().enumerate();
        let keys = keys.map(|(nth, column)| format!("{} AS key_{nth},", self.column(column)));
        format!(
            "WITH advisory_claim AS MATERIALIZED (SELECT {}{} AS until,{DURABLE} AS durable FROM {} WHERE ",
            keys.collect::<String>(),
            self.until,
            self.table
        )
    }

    fn is_key<T: Claim>(&self, values: &str) -> String {
        let columns = T::Key::NAMES.iter().map(|column| self.column(column));
        let columns = columns.collect::<Vec<_>>().join(",");
        format!("({columns}) OPERATOR(pg_catalog.=) ({values})")
    }

    /// Pending, by the literal condition of the index, and not claimed.
    fn unclaimed<T: Claim>(&self) -> String {
        let until = &self.until;
        let pending = terminal::<T>().map(|column| format!("{} IS NULL AND ", self.column(column)));
        format!(
            "{}({until} IS NULL OR {until} OPERATOR(pg_catalog.<=) {NOW})",
            pending.collect::<String>()
        )
    }

    /// Updates the rows that the `WITH` has locked.
    fn update<T: Claim>(&self, rows: &str, set: &str) -> String {
        let keys = (0..T::Key::NAMES.len()).map(|nth| format!("advisory_claim.key_{nth}"));
        format!(
            "{rows}) UPDATE {} SET {} = {set} FROM advisory_claim WHERE {}",
            self.table,
            quoted(T::LockedUntil::NAME),
            self.is_key::<T>(&keys.collect::<Vec<_>>().join(","))
        )
    }

    /// Claims the rows for the worker. The server draws the unique part of `locked_by`: a process that was forked, or restored from
    /// an image, would draw the same number twice.
    fn taken<T: Claim>(&self, rows: &str) -> String {
        let set = format!(
            "{}, {} = CAST(\0b AS pg_catalog.text) OPERATOR(pg_catalog.||) '#' OPERATOR(pg_catalog.||) \
             CAST(pg_catalog.gen_random_uuid() AS pg_catalog.text)",
            self.now_and_ttl::<T>(),
            quoted(T::LockedBy::NAME)
        );
        let updated = self.update::<T>(rows, &set);
        // The wait for the row does not count.
        let lasts = micros(&format!(
            "{} OPERATOR(pg_catalog.-) pg_catalog.statement_timestamp()",
            self.until
        ));
        format!("{updated} RETURNING {}, {lasts}, \0s", self.by)
    }

    /// Changes the row of a held claim. It is checked again after the wait for the row.
    fn change<T: Claim>(&self, set: &str) -> String {
        let held = format!(
            "{}{} AND {} OPERATOR(pg_catalog.=) \0b AND {} OPERATOR(pg_catalog.>) {NOW} FOR NO KEY UPDATE",
            self.locked::<T>(),
            self.is_key::<T>("\0k"),
            self.by,
            self.until
        );
        let updated = self.update::<T>(&held, set);
        format!("{updated} AND advisory_claim.until OPERATOR(pg_catalog.>) {NOW}")
    }
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a literal that means the same under both settings of `standard_conforming_strings`.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// `"schema"."table"`.
pub(super) fn table<T: Claim>() -> String {
    let mut builder = PgQueryBuilder::default();
    match T::Table::default().from_clause().to_sql(&mut builder, &Pg) {
        Ok(()) => builder.finish(),
        // Does not fail: it binds no values.
        Err(error) => format!("-- {error}"),
    }
}

/// Replaces NUL, which PostgreSQL's texts cannot contain.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        return text.replace('\0', "\u{FFFD}").into();
    }
    text.into()
}

/// The columns that end a row for good.
fn terminal<T: Claim>() -> impl Iterator<Item = &'static str> {
    [T::CompletedAt::COLUMN, T::FailedAt::COLUMN]
        .into_iter()
        .flatten()
}

/// The columns of the order, or those of the key.
fn order<T: Claim>(column: impl Fn(&str) -> String) -> String {
    let order = T::ORDER.iter();
    let mut order: Vec<_> = order
        .map(|order| column(order.column) + order.direction)
        .collect();
    if order.is_empty() {
        order.extend(T::Key::NAMES.iter().map(|name| column(name)));
    }
    order.join(", ")
}

/// The name of a row's state.
pub(super) fn state<T: Claim>() -> String {
    let names = Names::of::<T>();
    let terminal = [
        (T::CompletedAt::COLUMN, "completed"),
        (T::FailedAt::COLUMN, "failed"),
    ];
    let terminal = terminal.into_iter().filter_map(|(column, state)| {
        Some(format!(
            " WHEN {} IS NOT NULL THEN '{state}'",
            names.column(column?)
        ))
    });
    format!(
        "CASE{} WHEN {until} IS NULL THEN 'available' WHEN {until} OPERATOR(pg_catalog.>) {NOW} THEN 'running' ELSE 'expired' END",
        terminal.collect::<String>(),
        until = names.until
    )
}

/// What the index for [`Statement::next`] contains; `None` if the primary key is enough.
pub(super) fn index<T: Claim>() -> Option<String> {
    let pending = terminal::<T>().map(|column| format!("{} IS NULL", quoted(column)));
    let pending = pending.collect::<Vec<_>>().join(" AND ");
    if T::ORDER.is_empty() && pending.is_empty() {
        return None;
    }
    let condition = if pending.is_empty() { "" } else { " WHERE " };
    Some(format!("({}){condition}{pending}", order::<T>(quoted)))
}
