//! Every statement that claims send. Their text is fixed for a type of row, so that each is prepared once.
//!
//! Each locks its rows first, in a `WITH` of its own that is materialized, and computes and compares times only then: an
//! expression of an `UPDATE` alone is computed before the wait for its row, and a wait as long as a claim would make the claim
//! void. The conditions stand inside as well, so that who loses writes nothing. Rows are then found by their key, not by their
//! `ctid`: a row that has changed since the statement's snapshot has another one.
//!
//! What is pending is told in literals, so that a partial index serves the plan for any parameters too.

mod fragment;

pub(super) use fragment::{Held, Parts, Taker, millis};

use super::table::{Bound, Claim, MaybeColumn};
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Text, Untyped};
use diesel::{Column, QueryResult};
use fragment::{MILLISECONDS, NOW, NOW_AND, Out, push_order, terminal};

/// Claims the rows that come first, and passes over those that somebody has locked.
///
/// How many stands in the text: with a parameter, the plan for any value is one for a tenth of the table.
pub(super) struct Next<'a, T: Claim> {
    pub(super) parts: Parts<T>,
    pub(super) taker: Taker<'a>,
    pub(super) limit: u32,
}

impl<T: Claim> QueryFragment<Pg> for Next<'_, T> {
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

impl<T: Claim> Query for Next<'_, T> {
    type SqlType = Untyped;
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

/// How a claim ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum How<'a> {
    Complete,
    Fail(&'a str),
    Release,
}

/// What a statement sets beside the claim's own columns: a changeset of Diesel's.
pub(super) type Changes<'a> = &'a (dyn QueryFragment<Pg> + Send + Sync);

/// Ends a claim.
pub(super) struct Finish<'a, T: Claim, K> {
    pub(super) parts: Parts<T>,
    pub(super) held: Held<'a, K>,
    pub(super) how: How<'a>,
    pub(super) changes: Option<Changes<'a>>,
}

impl<T: Claim, K: Bound> QueryFragment<Pg> for Finish<'_, T, K> {
    fn walk_ast<'b>(&'b self, mut out: Out<'_, 'b>) -> QueryResult<()> {
        let (parts, out) = (&self.parts, &mut out);
        parts.push_held(&self.held, out)?;
        parts.push_update(out)?;
        out.push_sql("NULL, ");
        out.push_identifier(T::LockedBy::NAME)?;
        out.push_sql(" = NULL");
        let at = match self.how {
            How::Complete => T::CompletedAt::COLUMN,
            How::Fail(_) => T::FailedAt::COLUMN,
            How::Release => None,
        };
        if let Some(at) = at {
            out.push_sql(", ");
            out.push_identifier(at)?;
            out.push_sql(" = ");
            out.push_sql(NOW);
        }
        if let (How::Fail(message), Some(column)) = (&self.how, T::ErrorMessage::COLUMN) {
            out.push_sql(", ");
            out.push_identifier(column)?;
            out.push_sql(" = ");
            out.push_bind_param::<Text, _>(*message)?;
        }
        if let Some(changes) = self.changes
            && !changes.is_noop(&Pg)?
        {
            out.push_sql(", ");
            changes.walk_ast(out.reborrow())?;
        }
        parts.push_still_held(out)
    }
}

/// Looked up by its text, not by its type, as Diesel's own updates are.
macro_rules! by_text {
    ($($statement:ident<$($parameter:ident),+>)*) => {$(
        impl<$($parameter),+> QueryId for $statement<'_, $($parameter),+>
        where
            T: Claim,
        {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }
    )*};
}

by_text!(Next<T> ByKey<T, K> Renew<T, K> Finish<T, K>);

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
