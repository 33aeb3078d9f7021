//! How many rows of a table are in which state?

use super::sql;
use super::state::State;
use super::table::Claim;
use crate::{Connection, Error};
use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl;
use std::marker::PhantomData;

/// How many rows of a table are in which state, by the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Rows that nobody has claimed.
    pub available: u64,
    /// Rows whose claim has not expired.
    pub running: u64,
    /// Rows that were claimed, and neither renewed nor finished in time.
    pub expired: u64,
    /// Rows that are done.
    pub completed: u64,
    /// Rows that failed.
    pub failed: u64,
}

/// Counts the rows of a table by their state. It reads the whole table: for a dashboard, not for each claim.
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Cancel safety
///
/// Cancel safe: it only reads.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::claim::{self, Claim};
/// use diesel_async::AsyncPgConnection;
///
/// async fn waits<T: Claim>(conn: &mut AsyncPgConnection) -> Result<u64, advisory_runtime::Error> {
///     let counts = claim::counts::<T, _>(conn).await?;
///     Ok(counts.available + counts.expired)
/// }
/// ```
pub async fn counts<T: Claim, C: Connection>(conn: &mut C) -> Result<Counts, Error> {
    let statement = Count::<T>(PhantomData);
    let rows = RunQueryDsl::load(statement, conn.pg()).await;
    Ok(Counts::of(rows.map_err(Error::Database)?))
}

/// [`counts`] on a connection of Diesel's own.
#[cfg(feature = "postgres")]
pub(crate) fn counts_blocking<T: Claim>(conn: &mut diesel::PgConnection) -> Result<Counts, Error> {
    let rows = diesel::RunQueryDsl::load(Count::<T>(PhantomData), conn);
    Ok(Counts::of(rows.map_err(Error::Database)?))
}

impl Counts {
    fn of(rows: Vec<(State, i64)>) -> Self {
        let mut counts = Self::default();
        for (state, rows) in rows {
            let count = match state {
                State::Available => &mut counts.available,
                State::Running => &mut counts.running,
                State::Expired => &mut counts.expired,
                State::Completed => &mut counts.completed,
                State::Failed => &mut counts.failed,
            };
            *count = rows.unsigned_abs();
        }
        counts
    }
}

struct Count<T>(PhantomData<fn() -> T>);

impl<T: Claim> QueryFragment<Pg> for Count<T> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(&format!(
            "SELECT state, pg_catalog.count(*) FROM (SELECT {} AS state FROM {}) AS advisory_claim GROUP BY state",
            sql::state::<T>(),
            sql::table::<T>()
        ));
        Ok(())
    }
}

impl<T: Claim> Query for Count<T> {
    type SqlType = (Text, BigInt);
}

impl<T: Claim> QueryId for Count<T> {
    type QueryId = Self;
    const HAS_STATIC_QUERY_ID: bool = true;
}

#[cfg(feature = "postgres")]
impl<T: Claim, C> diesel::RunQueryDsl<C> for Count<T> {}
