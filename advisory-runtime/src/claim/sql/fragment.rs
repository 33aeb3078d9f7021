//! Parts of statements that several have in common.

use crate::claim::table::{Bound, Claim, KeyColumns, MaybeColumn, ttl};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{BigInt, Text};
use diesel::{Column, QueryResult, QuerySource};
use std::borrow::Cow;
use std::time::Duration;

pub(super) type Out<'a, 'b> = AstPass<'a, 'b, Pg>;

pub(super) const NOW: &str = "pg_catalog.clock_timestamp()";

/// Between these two, how many: a time from now.
pub(super) const NOW_AND: &str = "pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) (CAST(";
pub(super) const MILLISECONDS: &str =
    " AS pg_catalog.float8) OPERATOR(pg_catalog.*) CAST('1 ms' AS pg_catalog.interval))";

/// A column that makes the commit wait for the disk where the session would not: a claim that a crash forgets is held twice,
/// and a job whose end it forgets is done twice.
const DURABLE: &str = "CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) \
     ANY (CAST('{off,local,remote_write}' AS pg_catalog.text[])) \
     THEN pg_catalog.set_config('synchronous_commit','on',true) END AS durable";

/// What the text of a type's statements is made of.
pub(in crate::claim) struct Parts<T: Claim> {
    pub(super) from: <T::Table as QuerySource>::FromClause,
    pub(super) selection: T::Selection,
}

impl<T: Claim> Parts<T> {
    pub(in crate::claim) fn new() -> Self {
        Self {
            from: T::Table::default().from_clause(),
            selection: T::selection(),
        }
    }

    /// `"schema"."table"`.
    pub(in super::super) fn push_from<'b>(&'b self, out: Out<'_, 'b>) -> QueryResult<()> {
        self.from.walk_ast(out)
    }

    /// `"schema"."table"."column"`.
    pub(super) fn push<'b>(&'b self, column: &str, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        self.from.walk_ast(out.reborrow())?;
        out.push_sql(".");
        out.push_identifier(column)
    }

    /// Begins the `WITH` that locks rows: their keys, until when they are claimed, and where they come from.
    pub(super) fn push_locked<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        out.push_sql("WITH advisory_claim AS MATERIALIZED (SELECT ");
        for (nth, column) in T::Key::NAMES.iter().enumerate() {
            self.push(column, out)?;
            out.push_sql(&format!(" AS key_{nth},"));
        }
        self.push(T::LockedUntil::NAME, out)?;
        out.push_sql(" AS until,");
        out.push_sql(DURABLE);
        out.push_sql(" FROM ");
        self.from.walk_ast(out.reborrow())
    }

    /// Neither completed nor failed: the literal condition that the index has too.
    pub(super) fn push_pending<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        for column in terminal::<T>() {
            self.push(column, out)?;
            out.push_sql(" IS NULL AND ");
        }
        Ok(())
    }

    pub(super) fn push_unclaimed<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        out.push_sql("(");
        self.push(T::LockedUntil::NAME, out)?;
        out.push_sql(" IS NULL OR ");
        self.push(T::LockedUntil::NAME, out)?;
        out.push_sql(" OPERATOR(pg_catalog.<=) ");
        out.push_sql(NOW);
        out.push_sql(")");
        Ok(())
    }

    pub(super) fn push_is_key<'b>(
        &'b self,
        key: &'b impl Bound,
        out: &mut Out<'_, 'b>,
    ) -> QueryResult<()> {
        each_of_key::<T>(out, |nth, column, out| {
            self.push(column, out)?;
            out.push_sql(" OPERATOR(pg_catalog.=) ");
            key.walk_nth(nth, out.reborrow())
        })
    }

    /// Ends the `WITH` and begins the update of the rows that it has locked. No stronger lock than an update needs, so that
    /// rows that refer to this one can be written beside it.
    pub(super) fn push_update<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        out.push_sql(") UPDATE ");
        self.from.walk_ast(out.reborrow())?;
        out.push_sql(" SET ");
        out.push_identifier(T::LockedUntil::NAME)?;
        out.push_sql(" = ");
        Ok(())
    }

    /// The name of the worker and what no other claim has, drawn by the server: neither a fork nor a restored machine has its
    /// numbers twice.
    pub(super) fn push_taken<'b>(
        &'b self,
        taker: &'b Taker<'_>,
        out: &mut Out<'_, 'b>,
    ) -> QueryResult<()> {
        self.push_update(out)?;
        out.push_sql(NOW_AND);
        out.push_bind_param::<BigInt, _>(&taker.ttl)?;
        out.push_sql(MILLISECONDS);
        out.push_sql(", ");
        out.push_identifier(T::LockedBy::NAME)?;
        out.push_sql(" = CAST(");
        out.push_bind_param::<Text, _>(&taker.worker)?;
        out.push_sql(
            " AS pg_catalog.text) OPERATOR(pg_catalog.||) '#' OPERATOR(pg_catalog.||) \
             CAST(pg_catalog.gen_random_uuid() AS pg_catalog.text)",
        );
        self.push_of_locked(out)
    }

    pub(super) fn push_of_locked<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        out.push_sql(" FROM advisory_claim WHERE ");
        each_of_key::<T>(out, |nth, column, out| {
            self.push(column, out)?;
            out.push_sql(&format!(" OPERATOR(pg_catalog.=) advisory_claim.key_{nth}"));
            Ok(())
        })
    }

    pub(super) fn push_returning<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        out.push_sql(" RETURNING ");
        self.push(T::LockedBy::NAME, out)?;
        out.push_sql(", ");
        self.selection.walk_ast(out.reborrow())
    }

    /// Locks the row of a claim while it is held.
    pub(super) fn push_held<'b>(
        &'b self,
        held: &'b Held<'_, impl Bound>,
        out: &mut Out<'_, 'b>,
    ) -> QueryResult<()> {
        self.push_locked(out)?;
        out.push_sql(" WHERE ");
        self.push_is_key(&held.key, out)?;
        out.push_sql(" AND ");
        self.push(T::LockedBy::NAME, out)?;
        out.push_sql(" OPERATOR(pg_catalog.=) ");
        out.push_bind_param::<Text, _>(held.by)?;
        out.push_sql(" AND ");
        self.push(T::LockedUntil::NAME, out)?;
        out.push_sql(" OPERATOR(pg_catalog.>) ");
        out.push_sql(NOW);
        out.push_sql(" FOR NO KEY UPDATE");
        Ok(())
    }

    /// The row of a claim that is held still, now that its lock was waited for.
    pub(super) fn push_still_held<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        self.push_of_locked(out)?;
        out.push_sql(" AND advisory_claim.until OPERATOR(pg_catalog.>) ");
        out.push_sql(NOW);
        Ok(())
    }
}

/// A condition on each column of the key.
fn each_of_key<'b, T: Claim>(
    out: &mut Out<'_, 'b>,
    mut push: impl FnMut(usize, &str, &mut Out<'_, 'b>) -> QueryResult<()>,
) -> QueryResult<()> {
    for (nth, column) in T::Key::NAMES.iter().enumerate() {
        if nth > 0 {
            out.push_sql(" AND ");
        }
        push(nth, column, out)?;
    }
    Ok(())
}

/// The columns that say that a row is done for good.
pub(super) fn terminal<T: Claim>() -> impl Iterator<Item = &'static str> {
    [T::CompletedAt::COLUMN, T::FailedAt::COLUMN]
        .into_iter()
        .flatten()
}

/// The columns of the order, or without one those of the key.
pub(super) fn push_order<'b, T: Claim>(
    out: &mut Out<'_, 'b>,
    mut push: impl FnMut(&str, &mut Out<'_, 'b>) -> QueryResult<()>,
) -> QueryResult<()> {
    let of_key = T::Key::NAMES.iter().map(|column| (*column, ""));
    let of_key = of_key.filter(|_| T::ORDER.is_empty());
    let order = T::ORDER
        .iter()
        .map(|order| (order.column, order.direction()));
    for (nth, (column, direction)) in order.chain(of_key).enumerate() {
        if nth > 0 {
            out.push_sql(", ");
        }
        push(column, out)?;
        out.push_sql(direction);
    }
    Ok(())
}

/// Who claims, and for how many milliseconds.
pub(in crate::claim) struct Taker<'a> {
    pub(in crate::claim) worker: Cow<'a, str>,
    pub(in crate::claim) ttl: i64,
}

impl<'a> Taker<'a> {
    pub(in crate::claim) fn of<T: Claim>(worker: &'a str) -> Self {
        let worker = if worker.contains('\0') {
            Cow::Owned(worker.replace('\0', "\u{FFFD}"))
        } else {
            Cow::Borrowed(worker)
        };
        Self {
            worker,
            ttl: millis(ttl::<T>()),
        }
    }
}

/// Which claim: the row's key and the `locked_by` that only this one has.
pub(in crate::claim) struct Held<'a, K> {
    pub(in crate::claim) key: K,
    pub(in crate::claim) by: &'a str,
}

/// Whole milliseconds, as statements take a ttl.
pub(in crate::claim) fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}
