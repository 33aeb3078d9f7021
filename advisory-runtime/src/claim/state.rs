//! The state of a row, which depends on its columns and the time.

use super::sql;
use super::table::Claim;
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::{
    AppearsOnTable, AsExpression, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::pg::{Pg, PgValue};
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::Text;
use diesel::{QueryResult, QuerySource};
use std::io::Write;
use std::marker::PhantomData;

/// The state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromSqlRow, AsExpression)]
#[diesel(sql_type = Text)]
pub enum State {
    /// The row can be claimed: it is new, it was released, or its `run_at` has passed.
    Available,
    /// The row was never claimed, and its `run_at` is in the future.
    Scheduled,
    /// An attempt failed, and the row's `run_at` is in the future.
    Retrying,
    /// The row is claimed, and the claim has not expired.
    Running,
    /// The row's claim has expired: the next worker can claim it.
    Expired,
    /// The row was completed for good.
    Completed,
    /// The row failed for good.
    Failed,
}

impl State {
    /// Returns the state of a row with these columns at a time. Any type of time will do:
    /// `State::at(job.locked_until, None, None, &now)`.
    ///
    /// Claims expire by the server's clock, which [`state`] reads.
    #[must_use]
    pub fn at<I: PartialOrd>(
        locked_until: Option<I>,
        completed_at: Option<I>,
        failed_at: Option<I>,
        now: &I,
    ) -> Self {
        match (completed_at, failed_at, locked_until) {
            (Some(_), _, _) => Self::Completed,
            (None, Some(_), _) => Self::Failed,
            (None, None, None) => Self::Available,
            (None, None, Some(until)) if until > *now => Self::Running,
            (None, None, Some(_)) => Self::Expired,
        }
    }

    /// Returns the state of a row that also has a `run_at` and a number of attempts.
    #[must_use]
    pub fn with_run_at<I: PartialOrd>(self, run_at: Option<I>, attempts: u32, now: &I) -> Self {
        let is_later = run_at.is_some_and(|run_at| run_at > *now);
        match self {
            Self::Available if is_later && attempts > 0 => Self::Retrying,
            Self::Available if is_later => Self::Scheduled,
            state => state,
        }
    }

    const ALL: [Self; 7] = [
        Self::Available,
        Self::Scheduled,
        Self::Retrying,
        Self::Running,
        Self::Expired,
        Self::Completed,
        Self::Failed,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Scheduled => "scheduled",
            Self::Retrying => "retrying",
            Self::Running => "running",
            Self::Expired => "expired",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl FromSql<Text, Pg> for State {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let name = String::from_utf8_lossy(value.as_bytes());
        let state = Self::ALL.into_iter().find(|state| state.name() == name);
        state.ok_or_else(|| format!("`{name}` is not a state").into())
    }
}

impl ToSql<Text, Pg> for State {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(self.name().as_bytes())?;
        Ok(serialize::IsNull::No)
    }
}

/// Returns an expression for the state of each row, by the server's clock when it reads the row.
///
/// ```
#[doc = example_of_jobs!()]
/// use advisory_runtime::claim::{self, State};
/// use diesel::prelude::*;
///
/// let expired = jobs::table
///     .filter(claim::state::<Job>().eq(State::Expired))
///     .select((jobs::id, claim::state::<Job>()));
/// # let _ = expired;
/// ```
#[must_use]
pub fn state<T: Claim>() -> StateOf<T> {
    StateOf(PhantomData)
}

/// The expression that [`state`] returns.
pub struct StateOf<T>(PhantomData<fn() -> T>);

impl<T: Claim> Expression for StateOf<T> {
    type SqlType = Text;
}

impl<T: Claim> QueryFragment<Pg> for StateOf<T> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(&sql::state(&sql::RowType::of::<T>()));
        Ok(())
    }
}

impl<T: Claim> QueryId for StateOf<T> {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<T: Claim, S: QuerySource> AppearsOnTable<S> for StateOf<T> where
    T::LockedUntil: AppearsOnTable<S>
{
}

impl<T: Claim, S: QuerySource> SelectableExpression<S> for StateOf<T>
where
    T::LockedUntil: SelectableExpression<S>,
    Self: AppearsOnTable<S>,
{
}

impl<T: Claim> ValidGrouping<()> for StateOf<T> {
    type IsAggregate = is_aggregate::No;
}
