//! Every statement of claims. Its text is fixed for a type of row, so each is prepared once.
//!
//! Each locks its rows first, in a materialized `WITH`, and reads the clock only then: an `UPDATE` alone computes its expressions
//! before it waits for the row, and a long wait would use up the claim. The `WITH` has the conditions too, so a statement that
//! loses writes nothing. Rows are then found by key, not by `ctid`, which changes when a row is updated meanwhile.
//!
//! The condition for pending rows has no parameters, so a generic plan can use the partial index.

mod end;
pub(super) mod limit;
#[cfg(feature = "diesel-async")]
pub(super) mod listen;
pub(super) mod schema;
mod state;
mod text_cache;

use super::column_type::{HolderType, Time};
use super::table::{
    Claim, KeyColumns, MaybeColumn, MaybeCount, MaybeRunAt, MaybeTime, TimeColumn, ttl,
};
use crate::sql::{DURABLE, micros};
use diesel::pg::{Pg, PgQueryBuilder};
use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Text, Untyped};
use diesel::{Column, Expression, QueryResult, QuerySource};
pub(crate) use end::How;
pub(super) use state::{counts, state};
use std::borrow::Cow;
use std::sync::Arc;
use text_cache::{Form, cached};

const NOW: &str = "pg_catalog.clock_timestamp()";

/// The message of a row whose last attempt was not ended by its worker.
const UNENDED: &str = "the worker of the last attempt died, or its claim expired";

type UntilType<T> = <<T as Claim>::LockedUntil as Expression>::SqlType;
type ByType<T> = <<T as Claim>::LockedBy as Expression>::SqlType;

fn around([open, close]: [&str; 2], sql: &str) -> String {
    format!("{open}{sql}{close}")
}

/// The clock in the type of `locked_until`.
fn now_of_until<T: Claim>() -> String {
    around(UntilType::<T>::AROUND, NOW)
}

impl TimeColumn {
    fn set_to_now(self) -> String {
        format!(", {} = {}", quoted(self.name), around(self.around, NOW))
    }
}

/// A statement. In its text a mark replaces each value: NUL, which no name contains, and a letter.
pub(super) struct Statement<'a, T: Claim, K> {
    text: Arc<str>,
    key: K,
    ttl: i64,
    /// The worker's name, or the claim's own `locked_by`.
    by: Cow<'a, str>,
    selection: T::Selection,
    message: &'a str,
    /// The pause before another attempt, in milliseconds.
    pause: i64,
    /// The transaction to ask for.
    transaction: i64,
    /// The caller's condition for rows to claim.
    condition: Option<Changes<'a>>,
    changes: Option<Changes<'a>>,
}

/// The caller's columns to set: one of Diesel's changesets.
pub(crate) type Changes<'a> = &'a (dyn QueryFragment<Pg> + Send + Sync);

/// What a caller wants of the rows to claim besides their order, and what to set.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    pub(crate) condition: Option<Changes<'a>>,
    pub(crate) changes: Option<Changes<'a>>,
}

impl<'a, T: Claim> Statement<'a, T, ()> {
    /// Claims the first rows, and skips locked ones.
    ///
    /// The limit is a literal: a generic plan would assume that a parameter is a tenth of the table.
    pub(super) fn next(worker: &'a str, limit: u32, wanted: Wanted<'a>) -> Self {
        let sql = cached::<T>(Form::Next(limit), || {
            let names = Names::of::<T>();
            let rows = format!(
                "{}{}{}\0w ORDER BY {} LIMIT {limit} FOR NO KEY UPDATE SKIP LOCKED",
                names.locked::<T>(),
                names.unclaimed::<T>(),
                names.due::<T>(),
                order::<T>(|column| names.column(column)),
            );
            names.taken::<T>(&rows)
        });
        Self {
            condition: wanted.condition,
            changes: wanted.changes,
            ..Self::new(sql, (), text(worker))
        }
    }
}

impl<'a, T: Claim, K> Statement<'a, T, K> {
    fn new(text: Arc<str>, key: K, by: Cow<'a, str>) -> Self {
        Self {
            text,
            key,
            ttl: i64::try_from(ttl::<T>().as_millis()).unwrap_or(i64::MAX),
            by,
            selection: T::selection(),
            message: "",
            pause: 0,
            transaction: 0,
            condition: None,
            changes: None,
        }
    }

    /// Claims the row of a key.
    pub(super) fn by_key(worker: &'a str, key: K) -> Self {
        let sql = cached::<T>(Form::ByKey, || {
            let names = Names::of::<T>();
            let rows = format!(
                "{}{} AND {} FOR NO KEY UPDATE",
                names.locked::<T>(),
                names.is_key::<T>("\0k"),
                names.unclaimed::<T>(),
            );
            names.taken::<T>(&rows)
        });
        Self::new(sql, key, text(worker))
    }

    /// Renews a claim, and returns how long it lasts.
    pub(super) fn renew(locked_by: &'a str, key: K) -> Self {
        let sql = cached::<T>(Form::Renew, || {
            let names = Names::of::<T>();
            let renewed = names.change::<T>(&set_until::<T>(&names.now_and_ttl::<T>()));
            format!("{renewed} RETURNING {}", names.lasts::<T>())
        });
        Self::new(sql, key, locked_by.into())
    }

    /// Reads which claim holds the row, if any, and the state of a transaction: that of `pg_xact_status`, or `own` for the one that asks,
    /// or NULL for one that the server does not know, such as after a failover. It waits for one that has changed the row.
    pub(super) fn holder(key: K, transaction: i64) -> Self {
        let sql = cached::<T>(Form::Holder, || {
            let names = Names::of::<T>();
            let (table, by, is_key) = (&names.table, &names.by, names.is_key::<T>("\0k"));
            // `CASE` guarantees the order.
            format!(
                "WITH advisory_claim AS MATERIALIZED (SELECT {} AS holder FROM {table} WHERE {is_key} AND {by} IS NOT NULL FOR SHARE) \
                 SELECT (SELECT holder FROM advisory_claim), CASE WHEN (SELECT pg_catalog.count(*) FROM advisory_claim) \
                 OPERATOR(pg_catalog.>=) 0 THEN CASE WHEN id OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id_if_assigned() \
                 THEN 'own' WHEN id OPERATOR(pg_catalog.<=) pg_catalog.pg_current_xact_id() THEN pg_catalog.pg_xact_status(id) END END \
                 FROM (SELECT CAST(CAST(\0x AS pg_catalog.text) AS pg_catalog.xid8) AS id) AS asked",
                around(ByType::<T>::AROUND, by)
            )
        });
        Self {
            transaction,
            ..Self::new(sql, key, "".into())
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
                "p" => out.push_bind_param::<BigInt, _>(&self.pause)?,
                "x" => out.push_bind_param::<BigInt, _>(&self.transaction)?,
                "s" => self.selection.walk_ast(out.reborrow())?,
                "w" => {
                    if let Some(condition) = self.condition {
                        out.push_sql(" AND (");
                        condition.walk_ast(out.reborrow())?;
                        out.push_sql(")");
                    }
                }
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
        let until = format!(
            "{NOW} OPERATOR(pg_catalog.+) ((CAST(\0t AS pg_catalog.float8) OPERATOR(pg_catalog.+) COALESCE((SELECT \
             (CAST('{{499.999,49.999,4.999,0.499,0.049,0.004}}' AS pg_catalog.float8[]))[a.atttypmod OPERATOR(pg_catalog.+) 1] \
             FROM pg_catalog.pg_attribute AS a WHERE a.attrelid OPERATOR(pg_catalog.=) CAST({} AS pg_catalog.regclass) \
             AND a.attname OPERATOR(pg_catalog.=) CAST({} AS pg_catalog.name)),CAST(0 AS pg_catalog.float8))) \
             OPERATOR(pg_catalog.*) CAST('1 ms' AS pg_catalog.interval))",
            literal(&self.table),
            literal(T::LockedUntil::NAME)
        );
        around(UntilType::<T>::AROUND, &until)
    }

    /// The beginning of the `WITH` that locks the rows. The commit waits for the disk: a claim lost in a crash would be held twice,
    /// and a job whose end is lost would be done twice.
    fn locked<T: Claim>(&self) -> String {
        format!(
            "WITH advisory_claim AS MATERIALIZED (SELECT {} FROM {} WHERE ",
            self.locked_columns::<T>(),
            self.table
        )
    }

    fn locked_columns<T: Claim>(&self) -> String {
        let keys = T::Key::NAMES.iter().enumerate();
        let keys = keys.map(|(nth, column)| format!("{} AS key_{nth},", self.column(column)));
        let attempts = T::Attempts::COLUMN.map(|(column, _)| {
            let column = self.column(column);
            format!("CAST(COALESCE({column},0) AS pg_catalog.int8) AS attempts,")
        });
        format!(
            "{}{}{} AS until,{DURABLE} AS durable",
            keys.collect::<String>(),
            attempts.unwrap_or_default(),
            self.until,
        )
    }

    fn is_key<T: Claim>(&self, values: &str) -> String {
        let columns = T::Key::NAMES.iter().map(|column| self.column(column));
        let columns = columns.collect::<Vec<_>>().join(",");
        format!("({columns}) OPERATOR(pg_catalog.=) ({values})")
    }

    /// Pending, by the literal condition of the index, and not claimed.
    fn unclaimed<T: Claim>(&self) -> String {
        let (until, now) = (&self.until, now_of_until::<T>());
        let mut conditions = self.pending::<T>();
        conditions.push(format!(
            "({until} IS NULL OR {until} OPERATOR(pg_catalog.<=) {now})"
        ));
        conditions.join(" AND ")
    }

    /// The literal conditions of the index.
    fn pending<T: Claim>(&self) -> Vec<String> {
        pending::<T>(|column| self.column(column))
    }

    /// Not scheduled for later. The statement's time is stable, so that the scan of an index can end at it.
    fn due<T: Claim>(&self) -> String {
        let due = T::RunAt::COLUMN.map(|column| {
            let (name, now) = (
                self.column(column.name),
                around(column.around, "pg_catalog.statement_timestamp()"),
            );
            let is_due = format!("{name} OPERATOR(pg_catalog.<=) {now}");
            if column.is_nullable {
                return format!(" AND ({name} IS NULL OR {is_due})");
            }
            format!(" AND {is_due}")
        });
        due.unwrap_or_default()
    }

    /// Updates the rows that the `WITH` has locked.
    fn update<T: Claim>(&self, rows: &str, set: &str) -> String {
        let keys = (0..T::Key::NAMES.len()).map(|nth| format!("advisory_claim.key_{nth}"));
        format!(
            "{rows}) UPDATE {} SET {set} FROM advisory_claim WHERE {}",
            self.table,
            self.is_key::<T>(&keys.collect::<Vec<_>>().join(","))
        )
    }

    /// Claims the rows for the worker. The server draws the unique part of `locked_by`: a process that was forked, or restored from
    /// an image, would draw the same number twice.
    ///
    /// A row whose last attempt is over fails instead, and its `locked_by` in the answer is NULL.
    fn taken<T: Claim>(&self, rows: &str) -> String {
        let is_last = is_last::<T>();
        let unless_last = |value: &str, otherwise: &str| match &is_last {
            Some(is_last) => format!("CASE WHEN {is_last} THEN {otherwise} ELSE {value} END"),
            None => value.to_owned(),
        };
        let until = unless_last(&self.now_and_ttl::<T>(), "NULL");
        let mut set = vec![
            set_until::<T>(&until),
            format!(
                "{} = {}",
                quoted(T::LockedBy::NAME),
                unless_last(ByType::<T>::NEW, "NULL")
            ),
        ];
        if let Some((column, largest)) = T::Attempts::COLUMN {
            let counted = format!(
                "LEAST(advisory_claim.attempts,{}) OPERATOR(pg_catalog.+) 1",
                largest - 1
            );
            let value = unless_last(&counted, "advisory_claim.attempts");
            set.push(format!("{} = {value}", quoted(column)));
        }
        if let Some((is_last, column)) = is_last.as_ref().zip(T::FailedAt::COLUMN) {
            let (name, now) = (quoted(column.name), around(column.around, NOW));
            set.push(format!("{name} = CASE WHEN {is_last} THEN {now} END"));
            if let Some(column) = T::ErrorMessage::COLUMN {
                let (why, before) = (literal(UNENDED), self.column(column));
                let name = quoted(column);
                set.push(format!(
                    "{name} = CASE WHEN {is_last} THEN {why} ELSE {before} END"
                ));
            }
        }
        let set = set.join(", ") + "\0c";
        let updated = self.update::<T>(rows, &set);
        let (by, lasts) = (around(ByType::<T>::AROUND, &self.by), self.lasts::<T>());
        format!("{updated} RETURNING {by}, {lasts}, \0s")
    }

    /// The time from the statement's start, and so with the wait for the row, to the expiry, in microseconds.
    fn lasts<T: Claim>(&self) -> String {
        let start = around(UntilType::<T>::AROUND, "pg_catalog.statement_timestamp()");
        micros(&format!("{} OPERATOR(pg_catalog.-) {start}", self.until))
    }

    /// The row of a held claim, locked.
    fn held<T: Claim>(&self, lock: &str) -> String {
        format!(
            "{}{} AND {} OPERATOR(pg_catalog.=) {} AND {} OPERATOR(pg_catalog.>) {} FOR {lock}",
            self.locked::<T>(),
            self.is_key::<T>("\0k"),
            self.by,
            ByType::<T>::OLD,
            self.until,
            now_of_until::<T>()
        )
    }

    /// Whether the claim is still held, checked again after the wait for the row.
    fn still_held<T: Claim>() -> String {
        let now = now_of_until::<T>();
        format!(" AND advisory_claim.until OPERATOR(pg_catalog.>) {now}")
    }

    /// Changes the row of a held claim.
    fn change<T: Claim>(&self, set: &str) -> String {
        self.update::<T>(&self.held::<T>("NO KEY UPDATE"), set) + &Self::still_held::<T>()
    }
}

/// The beginning of what an `UPDATE` sets.
fn set_until<T: Claim>(value: &str) -> String {
    format!("{} = {value}", quoted(T::LockedUntil::NAME))
}

/// Whether the row has no attempt left, by the count before this statement.
fn is_last<T: Claim>() -> Option<String> {
    let most = T::MAX_ATTEMPTS.filter(|_| T::Attempts::COLUMN.is_some())?;
    Some(format!(
        "advisory_claim.attempts OPERATOR(pg_catalog.>=) {most}"
    ))
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
pub(crate) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        return text.replace('\0', "\u{FFFD}").into();
    }
    text.into()
}

/// The columns that end a row for good.
fn terminal<T: Claim>() -> impl Iterator<Item = TimeColumn> {
    [T::CompletedAt::COLUMN, T::FailedAt::COLUMN]
        .into_iter()
        .flatten()
}

/// Not done for good.
fn pending<T: Claim>(column: impl Fn(&str) -> String) -> Vec<String> {
    let pending = terminal::<T>().map(|time| format!("{} IS NULL", column(time.name)));
    pending.collect()
}

/// The columns of the order, or the time from which a row can be claimed, and the columns of the key; each with its direction.
fn order_columns<T: Claim>(column: impl Fn(&str) -> String) -> Vec<[String; 2]> {
    let order = T::ORDER.iter();
    let mut order: Vec<_> = order
        .map(|order| [column(order.column), order.direction.to_owned()])
        .collect();
    if order.is_empty() {
        let ascending = |name: &str| [column(name), String::new()];
        order.extend(T::RunAt::COLUMN.map(|run_at| ascending(run_at.name)));
        order.extend(T::Key::NAMES.iter().map(|name| ascending(name)));
    }
    order
}

fn joined(order: &[[String; 2]]) -> String {
    let order: Vec<_> = order.iter().map(|order| order.concat()).collect();
    order.join(", ")
}

fn order<T: Claim>(column: impl Fn(&str) -> String) -> String {
    joined(&order_columns::<T>(column))
}

/// What the index for [`Statement::next`] contains; `None` if the primary key is enough.
pub(super) fn index<T: Claim>() -> Option<String> {
    let pending = pending::<T>(quoted);
    if T::ORDER.is_empty() && T::RunAt::COLUMN.is_none() && pending.is_empty() {
        return None;
    }
    Some(format!("({}){}", order::<T>(quoted), only(&pending)))
}

/// The condition of a partial index.
fn only(conditions: &[String]) -> String {
    if conditions.is_empty() {
        return String::new();
    }
    format!(" WHERE {}", conditions.join(" AND "))
}
