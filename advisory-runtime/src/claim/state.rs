//! What state is a row in? It follows from its columns and the time; the server's own time, where the server is asked.

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
    /// Nobody has claimed it, or who had has given it back.
    Available,
    /// It is claimed, and the claim has not expired.
    Running,
    /// It was claimed, and neither renewed nor finished in time: whoever comes next gets it.
    Expired,
    /// It is done, for good.
    Completed,
    /// It failed, for good.
    Failed,
}

impl State {
    /// The state of a row with these columns at this time, of whatever type: `State::at(job.locked_until, None, None, &now)`.
    ///
    /// Whose clock `now` is decides what the answer is worth: claims expire by the server's. [`state`] asks the server.
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

    pub(super) const ALL: [Self; 5] = [
        Self::Available,
        Self::Running,
        Self::Expired,
        Self::Completed,
        Self::Failed,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Available => "available",
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
        let name = value.as_bytes();
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.name().as_bytes() == name)
            .ok_or_else(|| format!("no state: {}", String::from_utf8_lossy(name)).into())
    }
}

impl ToSql<Text, Pg> for State {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(self.name().as_bytes())?;
        Ok(serialize::IsNull::No)
    }
}

/// The state of each row as an expression, at the time of the server's clock when it reads the row.
///
/// ```
/// # #[cfg(feature = "diesel-async")]
/// # mod jobs {
/// # diesel::table! { sync_jobs { id -> BigInt, locked_until -> Nullable<Timestamptz>, locked_by -> Nullable<Text> } }
/// # #[derive(diesel::Queryable, diesel::Selectable, advisory_runtime::claim::Claim)]
/// # #[diesel(table_name = sync_jobs)]
/// # struct SyncJob { id: i64 }
/// use advisory_runtime::claim::{self, State};
/// use diesel::prelude::*;
/// use diesel_async::{AsyncPgConnection, RunQueryDsl};
///
/// async fn expired(conn: &mut AsyncPgConnection) -> QueryResult<Vec<(SyncJob, State)>> {
///     sync_jobs::table
///         .filter(claim::state::<SyncJob>().eq(State::Expired))
///         .select((SyncJob::as_select(), claim::state::<SyncJob>()))
///         .load(conn)
///         .await
/// }
/// # }
/// ```
#[must_use]
pub fn state<T: Claim>() -> StateOf<T> {
    StateOf(PhantomData)
}

/// What [`state`] gives.
pub struct StateOf<T>(PhantomData<fn() -> T>);

impl<T: Claim> Expression for StateOf<T> {
    type SqlType = Text;
}

impl<T: Claim> QueryFragment<Pg> for StateOf<T> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(&sql::state::<T>());
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
