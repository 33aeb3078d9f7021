//! How many rows of a table are in which state?

use super::Error;
use super::sql;
use super::state::State;
use super::table::Claim;
use crate::Connection;
use diesel::QueryResult;
use diesel::query_builder::SqlQuery;
use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl;

/// How many rows of a table are in which state, by the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Rows that are not claimed.
    pub available: u64,
    /// Rows whose claim has not expired.
    pub running: u64,
    /// Rows whose claim was neither renewed nor finished in time.
    pub expired: u64,
    /// Rows that are done.
    pub completed: u64,
    /// Rows that failed for good.
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
pub async fn counts<T: Claim, C: Connection>(conn: &mut C) -> Result<Counts, Error> {
    Counts::of(RunQueryDsl::load(query::<T>(), conn.pg()).await)
}

/// [`counts`] on a connection of Diesel's own.
#[cfg(feature = "postgres")]
pub(crate) fn counts_blocking<T: Claim>(conn: &mut diesel::PgConnection) -> Result<Counts, Error> {
    Counts::of(diesel::RunQueryDsl::load(query::<T>(), conn))
}

#[derive(diesel::QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
struct Group {
    #[diesel(sql_type = Text)]
    state: State,
    #[diesel(sql_type = BigInt)]
    count: i64,
}

fn query<T: Claim>() -> SqlQuery {
    diesel::sql_query(format!(
        "SELECT state, pg_catalog.count(*) FROM (SELECT {} AS state FROM {}) AS advisory_claim GROUP BY state",
        sql::state::<T>(),
        sql::table::<T>()
    ))
}

impl Counts {
    fn of(groups: QueryResult<Vec<Group>>) -> Result<Self, Error> {
        let mut counts = Self::default();
        for Group { state, count } in groups.map_err(Error::Database)? {
            *match state {
                State::Available => &mut counts.available,
                State::Running => &mut counts.running,
                State::Expired => &mut counts.expired,
                State::Completed => &mut counts.completed,
                State::Failed => &mut counts.failed,
            } = count.unsigned_abs();
        }
        Ok(counts)
    }
}
