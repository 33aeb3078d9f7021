//! Every statement that claims send. Their text is fixed for a type of row, so that each is prepared once.
//!
//! Each locks its rows first, in a `WITH` of its own that is materialized, and computes and compares times only then: an
//! expression of an `UPDATE` alone is computed before the wait for its row, and a wait as long as a claim would make the claim
//! void. The conditions stand inside as well, so that who loses writes nothing. Rows are then found by their key, not by their
//! `ctid`: a row that has changed since the statement's snapshot has another one.
//!
//! What is pending is told in literals, so that a partial index serves the plan for any parameters too.

use super::table::{Bound, Claim, Key, MaybeColumn, ttl};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Text, Untyped};
use diesel::{Column, QueryResult, QuerySource};
use std::marker::PhantomData;
use std::time::Duration;

type Out<'a, 'b> = AstPass<'a, 'b, Pg>;

const NOW: &str = "pg_catalog.clock_timestamp()";

/// Between these two, how many: a time from now.
const NOW_AND: &str = "pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) (CAST(";
const MILLISECONDS: &str =
    " AS pg_catalog.float8) OPERATOR(pg_catalog.*) CAST('1 ms' AS pg_catalog.interval))";

/// A column that makes the commit wait for the disk where the session would not: a claim that a crash forgets is held twice,
/// and a job whose end it forgets is done twice.
const DURABLE: &str = "CASE WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) \
     ANY (CAST('{off,local,remote_write}' AS pg_catalog.text[])) \
     THEN pg_catalog.set_config('synchronous_commit','on',true) END AS durable";

/// What the text of a type's statements is made of.
pub(super) struct Parts<T: Claim> {
    from: <T::Table as QuerySource>::FromClause,
    selection: T::Selection,
}

impl<T: Claim> Parts<T> {
    pub(super) fn new() -> Self {
        Self {
            from: T::Table::default().from_clause(),
            selection: T::selection(),
        }
    }

    /// `"schema"."table"."column"`.
    fn push<'b>(&'b self, column: &str, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        self.from.walk_ast(out.reborrow())?;
        out.push_sql(".");
        out.push_identifier(column)
    }

    /// Begins the `WITH` that locks rows: their keys, until when they are claimed, and where they come from.
    fn push_locked<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
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
    fn push_pending<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        for column in terminal::<T>() {
            self.push(column, out)?;
            out.push_sql(" IS NULL AND ");
        }
        Ok(())
    }

    fn push_unclaimed<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        out.push_sql("(");
        self.push(T::LockedUntil::NAME, out)?;
        out.push_sql(" IS NULL OR ");
        self.push(T::LockedUntil::NAME, out)?;
        out.push_sql(" OPERATOR(pg_catalog.<=) ");
        out.push_sql(NOW);
        out.push_sql(")");
        Ok(())
    }

    fn push_is_key<'b>(&'b self, key: &'b impl Bound, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        each_of_key::<T>(out, |nth, column, out| {
            self.push(column, out)?;
            out.push_sql(" OPERATOR(pg_catalog.=) ");
            key.walk_nth(nth, out.reborrow())
        })
    }

    /// Ends the `WITH` and begins the update of the rows that it has locked. No stronger lock than an update needs, so that
    /// rows that refer to this one can be written beside it.
    fn push_update<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        out.push_sql(") UPDATE ");
        self.from.walk_ast(out.reborrow())?;
        out.push_sql(" SET ");
        out.push_identifier(T::LockedUntil::NAME)?;
        out.push_sql(" = ");
        Ok(())
    }

    /// The name of the worker and what no other claim has, drawn by the server: neither a fork nor a restored machine has its
    /// numbers twice.
    fn push_taken<'b>(&'b self, taker: &'b Taker<'_>, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        self.push_update(out)?;
        out.push_sql(NOW_AND);
        out.push_bind_param::<BigInt, _>(&taker.ttl)?;
        out.push_sql(MILLISECONDS);
        out.push_sql(", ");
        out.push_identifier(T::LockedBy::NAME)?;
        out.push_sql(" = CAST(");
        out.push_bind_param::<Text, _>(taker.worker)?;
        out.push_sql(
            " AS pg_catalog.text) OPERATOR(pg_catalog.||) '#' OPERATOR(pg_catalog.||) \
             CAST(pg_catalog.gen_random_uuid() AS pg_catalog.text)",
        );
        self.push_of_locked(out)
    }

    fn push_of_locked<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        out.push_sql(" FROM advisory_claim WHERE ");
        each_of_key::<T>(out, |nth, column, out| {
            self.push(column, out)?;
            out.push_sql(&format!(" OPERATOR(pg_catalog.=) advisory_claim.key_{nth}"));
            Ok(())
        })
    }

    fn push_returning<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        out.push_sql(" RETURNING ");
        self.push(T::LockedBy::NAME, out)?;
        out.push_sql(", ");
        self.selection.walk_ast(out.reborrow())
    }

    /// Locks the row of a claim while it is held.
    fn push_held<'b>(
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
    fn push_still_held<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
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
fn terminal<T: Claim>() -> impl Iterator<Item = &'static str> {
    [T::CompletedAt::COLUMN, T::FailedAt::COLUMN]
        .into_iter()
        .flatten()
}

/// Who claims, and for how many milliseconds.
pub(super) struct Taker<'a> {
    pub(super) worker: &'a str,
    pub(super) ttl: i64,
}

impl<'a> Taker<'a> {
    pub(super) fn of<T: Claim>(worker: &'a str) -> Self {
        Self {
            worker,
            ttl: millis(ttl::<T>()),
        }
    }
}

/// Claims the rows that come first, and passes over those that somebody has locked.
///
/// How many stands in the text: with a parameter, the plan for any value is one for a tenth of the table.
pub(super) struct Next<'a, T: Claim, const ONE: bool> {
    pub(super) parts: Parts<T>,
    pub(super) taker: Taker<'a>,
    pub(super) limit: u32,
}

impl<T: Claim, const ONE: bool> QueryFragment<Pg> for Next<'_, T, ONE> {
    fn walk_ast<'b>(&'b self, mut out: Out<'_, 'b>) -> QueryResult<()> {
        let (parts, out) = (&self.parts, &mut out);
        parts.push_locked(out)?;
        out.push_sql(" WHERE ");
        parts.push_pending(out)?;
        parts.push_unclaimed(out)?;
        out.push_sql(" ORDER BY ");
        push_order::<T>(out, |column, out| parts.push(column, out))?;
        out.push_sql(&format!(
            " LIMIT {} FOR NO KEY UPDATE SKIP LOCKED",
            self.limit
        ));
        parts.push_taken(&self.taker, out)?;
        parts.push_returning(out)
    }
}

impl<T: Claim, const ONE: bool> Query for Next<'_, T, ONE> {
    type SqlType = Untyped;
}

impl<T: Claim, const ONE: bool> QueryId for Next<'_, T, ONE> {
    type QueryId = Next<'static, T, ONE>;
    const HAS_STATIC_QUERY_ID: bool = ONE;
}

/// Claims the row of a key.
pub(super) struct ByKey<'a, T: Claim, K> {
    pub(super) parts: Parts<T>,
    pub(super) taker: Taker<'a>,
    pub(super) key: K,
}

impl<T: Claim, K: Bound> QueryFragment<Pg> for ByKey<'_, T, K> {
    fn walk_ast<'b>(&'b self, mut out: Out<'_, 'b>) -> QueryResult<()> {
        let (parts, out) = (&self.parts, &mut out);
        parts.push_locked(out)?;
        out.push_sql(" WHERE ");
        parts.push_is_key(&self.key, out)?;
        out.push_sql(" AND ");
        parts.push_pending(out)?;
        parts.push_unclaimed(out)?;
        out.push_sql(" FOR NO KEY UPDATE");
        parts.push_taken(&self.taker, out)?;
        parts.push_returning(out)
    }
}

impl<T: Claim, K: Bound> Query for ByKey<'_, T, K> {
    type SqlType = Untyped;
}

impl<T: Claim, K: Bound> QueryId for ByKey<'_, T, K> {
    type QueryId = ByKey<'static, T, K::QueryId>;
    const HAS_STATIC_QUERY_ID: bool = K::HAS_STATIC_QUERY_ID;
}

/// Which claim: the row's key and the `locked_by` that only this one has.
pub(super) struct Held<'a, K> {
    pub(super) key: K,
    pub(super) by: &'a str,
}

/// Has a claim last for its ttl from now.
pub(super) struct Renew<'a, T: Claim, K> {
    pub(super) parts: Parts<T>,
    pub(super) held: Held<'a, K>,
    pub(super) ttl: i64,
}

impl<T: Claim, K: Bound> QueryFragment<Pg> for Renew<'_, T, K> {
    fn walk_ast<'b>(&'b self, mut out: Out<'_, 'b>) -> QueryResult<()> {
        let (parts, out) = (&self.parts, &mut out);
        parts.push_held(&self.held, out)?;
        parts.push_update(out)?;
        out.push_sql(NOW_AND);
        out.push_bind_param::<BigInt, _>(&self.ttl)?;
        out.push_sql(MILLISECONDS);
        parts.push_still_held(out)
    }
}

impl<T: Claim, K: Bound> QueryId for Renew<'_, T, K> {
    type QueryId = Renew<'static, T, K::QueryId>;
    const HAS_STATIC_QUERY_ID: bool = K::HAS_STATIC_QUERY_ID;
}

/// How a claim ends.
pub(super) trait End: Send + Sync + 'static {
    const HOW: How;
}

pub(super) enum How {
    Complete,
    Fail,
    Release,
}

macro_rules! ends {
    ($($how:ident)*) => {$(
        pub(super) struct $how;
        impl End for $how { const HOW: How = How::$how; }
    )*};
}

ends!(Complete Fail Release);

/// Ends a claim.
pub(super) struct Finish<'a, T: Claim, K, E, S = Nothing> {
    pub(super) parts: Parts<T>,
    pub(super) held: Held<'a, K>,
    pub(super) end: PhantomData<E>,
    pub(super) message: &'a str,
    /// What else is set.
    pub(super) changes: S,
}

impl<T: Claim, K: Bound, E: End, S: Changes> QueryFragment<Pg> for Finish<'_, T, K, E, S> {
    fn walk_ast<'b>(&'b self, mut out: Out<'_, 'b>) -> QueryResult<()> {
        let (parts, out) = (&self.parts, &mut out);
        parts.push_held(&self.held, out)?;
        parts.push_update(out)?;
        out.push_sql("NULL, ");
        out.push_identifier(T::LockedBy::NAME)?;
        out.push_sql(" = NULL");
        let at = match E::HOW {
            How::Complete => T::CompletedAt::COLUMN,
            How::Fail => T::FailedAt::COLUMN,
            How::Release => None,
        };
        if let Some(at) = at {
            out.push_sql(", ");
            out.push_identifier(at)?;
            out.push_sql(" = ");
            out.push_sql(NOW);
        }
        if let (How::Fail, Some(column)) = (E::HOW, T::ErrorMessage::COLUMN) {
            out.push_sql(", ");
            out.push_identifier(column)?;
            out.push_sql(" = ");
            out.push_bind_param::<Text, _>(self.message)?;
        }
        self.changes.push(out)?;
        parts.push_still_held(out)
    }
}

impl<T: Claim, K: Bound, E: End, S: Changes> QueryId for Finish<'_, T, K, E, S> {
    type QueryId = Finish<'static, T, K::QueryId, E>;
    const HAS_STATIC_QUERY_ID: bool = K::HAS_STATIC_QUERY_ID && S::ARE_FIXED;
}

/// What a statement sets beside the lease's own columns.
pub(super) trait Changes: Send + Sync {
    /// Whether their text is always the same.
    const ARE_FIXED: bool;

    fn push<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()>;
}

pub(super) struct Nothing;

impl Changes for Nothing {
    const ARE_FIXED: bool = true;

    fn push<'b>(&'b self, _: &mut Out<'_, 'b>) -> QueryResult<()> {
        Ok(())
    }
}

/// A changeset of Diesel's.
pub(super) struct With<S>(pub(super) S);

impl<S: QueryFragment<Pg> + Send + Sync> Changes for With<S> {
    const ARE_FIXED: bool = false;

    fn push<'b>(&'b self, out: &mut Out<'_, 'b>) -> QueryResult<()> {
        if !self.0.is_noop(&Pg)? {
            out.push_sql(", ");
            self.0.walk_ast(out.reborrow())?;
        }
        Ok(())
    }
}

/// The columns of the order, or without one those of the key.
fn push_order<'b, T: Claim>(
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

/// The name of the state.
pub(super) fn push_state<'b, T: Claim>(
    parts: &'b Parts<T>,
    mut out: Out<'_, 'b>,
) -> QueryResult<()> {
    let out = &mut out;
    let terminal = [
        (T::CompletedAt::COLUMN, "completed"),
        (T::FailedAt::COLUMN, "failed"),
    ];
    out.push_sql("CASE");
    for (column, state) in terminal {
        if let Some(column) = column {
            out.push_sql(" WHEN ");
            parts.push(column, out)?;
            out.push_sql(&format!(" IS NOT NULL THEN '{state}'"));
        }
    }
    out.push_sql(" WHEN ");
    parts.push(T::LockedUntil::NAME, out)?;
    out.push_sql(" IS NULL THEN 'available' WHEN ");
    parts.push(T::LockedUntil::NAME, out)?;
    out.push_sql(" OPERATOR(pg_catalog.>) ");
    out.push_sql(NOW);
    out.push_sql(" THEN 'running' ELSE 'expired' END");
    Ok(())
}

/// The index that [`Next`] reads: the order, of what is pending.
pub(super) struct Index<T: Claim> {
    pub(super) parts: Parts<T>,
    pub(super) name: String,
}

impl<T: Claim> Index<T> {
    /// Whether the key's own index does not do.
    pub(super) fn is_needed() -> bool {
        !T::ORDER.is_empty() || terminal::<T>().next().is_some()
    }
}

impl<T: Claim> QueryFragment<Pg> for Index<T> {
    fn walk_ast<'b>(&'b self, mut out: Out<'_, 'b>) -> QueryResult<()> {
        let out = &mut out;
        out.push_sql("CREATE INDEX IF NOT EXISTS ");
        out.push_identifier(&self.name)?;
        out.push_sql(" ON ");
        self.parts.from.walk_ast(out.reborrow())?;
        out.push_sql(" (");
        push_order::<T>(out, |column, out| out.push_identifier(column))?;
        out.push_sql(")");
        for (nth, column) in terminal::<T>().enumerate() {
            out.push_sql(if nth == 0 { " WHERE " } else { " AND " });
            out.push_identifier(column)?;
            out.push_sql(" IS NULL");
        }
        Ok(())
    }
}

/// The table as SQL names it: `"schema"."table"`.
pub(super) struct Named<T: Claim>(pub(super) Parts<T>);

impl<T: Claim> QueryFragment<Pg> for Named<T> {
    fn walk_ast<'b>(&'b self, out: Out<'_, 'b>) -> QueryResult<()> {
        self.0.from.walk_ast(out)
    }
}

/// Whole milliseconds, as statements take a ttl.
pub(super) fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}
