//! Every statement that claims send. Their text is fixed for a type of row, so that each is prepared once.
//!
//! Each locks its rows first, in a `WITH` of its own that is materialized, and computes and compares times only then: an
//! expression of an `UPDATE` alone is computed before the wait for its row, and a wait as long as a claim would make the claim
//! void. The conditions stand inside as well, so that who loses writes nothing. Rows are then found by their key, not by their
//! `ctid`: a row that has changed since the statement's snapshot has another one.
//!
//! What is pending is told in literals, so that a partial index serves the plan for any parameters too.

use super::table::{Bound, Claim, KeyColumns, MaybeColumn, ttl};
use crate::renewal::DURABLE;
use diesel::pg::{Pg, PgQueryBuilder};
use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Text, Untyped};
use diesel::{Column, QueryResult, QuerySource};
use std::borrow::Cow;

const NOW: &str = "pg_catalog.clock_timestamp()";
/// A time from now: `\0t` is the ttl in milliseconds.
const NOW_AND_TTL: &str = "pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) (CAST(\0t AS pg_catalog.float8) \
     OPERATOR(pg_catalog.*) CAST('1 ms' AS pg_catalog.interval))";

/// A statement. Its text has a mark where a value is: NUL, which no name has, and a letter or the number of the key's column.
pub(super) struct Statement<'a, T: Claim, K> {
    text: String,
    key: K,
    ttl: i64,
    /// The worker that claims, or the `locked_by` that only this claim has.
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

/// What a statement sets beside the claim's own columns: a changeset of Diesel's.
pub(super) type Changes<'a> = &'a (dyn QueryFragment<Pg> + Send + Sync);

impl<'a, T: Claim> Statement<'a, T, ()> {
    /// Claims the rows that come first, and passes over those that somebody has locked.
    ///
    /// The limit is part of the text: a generic plan for a parameter assumes a tenth of the table.
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

impl<'a, T: Claim, K: Bound> Statement<'a, T, K> {
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
            names.is_key::<T>(|nth| format!("\0{nth}")),
            names.unclaimed::<T>(),
        );
        Self::new(names.taken::<T>(&rows), key, text(worker))
    }

    /// Has a claim last for its ttl from now.
    pub(super) fn renew(locked_by: &'a str, key: K) -> Self {
        let text = Names::of::<T>().change::<T>(NOW_AND_TTL);
        Self::new(text, key, locked_by.into())
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
        let at = at.map(|at| format!(", {} = {NOW}", quoted(at)));
        let why = match (how, T::ErrorMessage::COLUMN) {
            (How::Fail(message), Some(column)) => Some((message, column)),
            _ => None,
        };
        let why_set = why.map(|(_, column)| format!(", {} = \0m", quoted(column)));
        let set = format!(
            "NULL, {} = NULL{}{}\0c",
            quoted(T::LockedBy::NAME),
            at.unwrap_or_default(),
            why_set.unwrap_or_default()
        );
        let message = why.map_or("", |(message, _)| message);
        let text = Names::of::<T>().change::<T>(&set);
        Self {
            message,
            changes,
            ..Self::new(text, key, locked_by.into())
        }
    }
}

impl<T: Claim, K: Bound> QueryFragment<Pg> for Statement<'_, T, K> {
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
                nth => self.key.walk_nth(nth, out.reborrow())?,
            }
            out.push_sql(rest);
        }
        Ok(())
    }
}

impl<T: Claim, K> Query for Statement<'_, T, K> {
    type SqlType = Untyped;
}

/// Looked up by its text, not by its type, as Diesel's own updates are.
impl<T: Claim, K> QueryId for Statement<'_, T, K> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// The names of a type, as SQL writes them: `"schema"."table"."column"`.
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

    /// Begins the `WITH` that locks rows: their keys, until when they are claimed, and where they come from. A claim that a crash
    /// forgets is held twice, and a job whose end it forgets is done twice, so the commit waits for the disk.
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

    /// A condition on each column of the key.
    fn is_key<T: Claim>(&self, value: impl Fn(usize) -> String) -> String {
        let keys = T::Key::NAMES.iter().enumerate().map(|(nth, column)| {
            let (column, value) = (self.column(column), value(nth));
            format!("{column} OPERATOR(pg_catalog.=) {value}")
        });
        keys.collect::<Vec<_>>().join(" AND ")
    }

    /// Neither completed nor failed, which is the literal condition that the index has too, and claimed by nobody.
    fn unclaimed<T: Claim>(&self) -> String {
        let until = &self.until;
        let pending = terminal::<T>().map(|column| format!("{} IS NULL AND ", self.column(column)));
        format!(
            "{}({until} IS NULL OR {until} OPERATOR(pg_catalog.<=) {NOW})",
            pending.collect::<String>()
        )
    }

    /// Updates the rows that the `WITH` has locked. No stronger lock than an update needs, so that rows that refer to this one can be
    /// written beside it.
    fn update<T: Claim>(&self, rows: &str, set: &str) -> String {
        format!(
            "{rows}) UPDATE {} SET {} = {set} FROM advisory_claim WHERE {}",
            self.table,
            quoted(T::LockedUntil::NAME),
            self.is_key::<T>(|nth| format!("advisory_claim.key_{nth}"))
        )
    }

    /// Claims rows under the name of the worker and what no other claim has, drawn by the server: neither a fork nor a restored machine
    /// has its numbers twice.
    fn taken<T: Claim>(&self, rows: &str) -> String {
        let set = format!(
            "{NOW_AND_TTL}, {} = CAST(\0b AS pg_catalog.text) OPERATOR(pg_catalog.||) '#' OPERATOR(pg_catalog.||) \
             CAST(pg_catalog.gen_random_uuid() AS pg_catalog.text)",
            quoted(T::LockedBy::NAME)
        );
        let updated = self.update::<T>(rows, &set);
        format!("{updated} RETURNING {}, \0s", self.by)
    }

    /// Changes the row of a claim that is held, and is held still when its lock was waited for.
    fn change<T: Claim>(&self, set: &str) -> String {
        let held = format!(
            "{}{} AND {} OPERATOR(pg_catalog.=) \0b AND {} OPERATOR(pg_catalog.>) {NOW} FOR NO KEY UPDATE",
            self.locked::<T>(),
            self.is_key::<T>(|nth| format!("\0{nth}")),
            self.by,
            self.until
        );
        let updated = self.update::<T>(&held, set);
        format!("{updated} AND advisory_claim.until OPERATOR(pg_catalog.>) {NOW}")
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `"schema"."table"`.
pub(super) fn table<T: Claim>() -> String {
    let mut builder = PgQueryBuilder::default();
    match T::Table::default().from_clause().to_sql(&mut builder, &Pg) {
        Ok(()) => builder.finish(),
        // This cannot fail: it binds no values.
        Err(error) => format!("-- {error}"),
    }
}

/// What a text of the server's can hold.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        return text.replace('\0', "\u{FFFD}").into();
    }
    text.into()
}

/// The columns that say that a row is done for good.
pub(super) fn terminal<T: Claim>() -> impl Iterator<Item = &'static str> {
    [T::CompletedAt::COLUMN, T::FailedAt::COLUMN]
        .into_iter()
        .flatten()
}

/// The columns of the order, or without one those of the key.
pub(super) fn order<T: Claim>(column: impl Fn(&str) -> String) -> String {
    let of_key = T::Key::NAMES.iter().map(|column| (*column, ""));
    let of_key = of_key.filter(|_| T::ORDER.is_empty());
    let order = T::ORDER
        .iter()
        .map(|order| (order.column, order.direction()));
    let order = order
        .chain(of_key)
        .map(|(name, direction)| column(name) + direction);
    order.collect::<Vec<_>>().join(", ")
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

/// What [`Statement::next`] reads: the order, of what is pending. Nothing where the key's own index does.
pub(super) fn index<T: Claim>(name: &str) -> Option<String> {
    if T::ORDER.is_empty() && terminal::<T>().next().is_none() {
        return None;
    }
    let pending: Vec<_> = terminal::<T>()
        .map(|column| format!("{} IS NULL", quoted(column)))
        .collect();
    let pending = pending.join(" AND ");
    let condition = if pending.is_empty() { "" } else { " WHERE " };
    Some(format!(
        "CREATE INDEX IF NOT EXISTS {} ON {} ({}){condition}{pending};",
        quoted(name),
        table::<T>(),
        order::<T>(quoted)
    ))
}
