//! Statements that are sent again after a conflict.

use super::Error;
use crate::driver::{Queries, depth};
use crate::error::is_conflict;
use diesel::deserialize::FromSqlRow;
use diesel::expression::QueryMetadata;
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::query_dsl::CompatibleType;
use diesel::result::Error as DieselError;

/// The number of conflicts after which a statement is still sent again. They occur under REPEATABLE
/// READ and SERIALIZABLE, and in each of them another statement has succeeded.
pub(super) struct Conflicts(usize);

impl Conflicts {
    /// Allows none inside a transaction, which a conflict aborts.
    pub(super) fn on<D: Queries>(conn: &mut D) -> Self {
        let is_outside = matches!(depth(conn), Ok(None));
        Self(if is_outside { 99 } else { 0 })
    }

    /// Returns `true` if the failed statement should be sent again.
    pub(super) fn retry(&mut self, error: &DieselError) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left && is_conflict(error)
    }
}

/// Sends a statement that returns rows.
pub(super) async fn load<Q, R, S, D>(conn: &mut D, statement: &Q) -> Result<Vec<R>, Error>
where
    D: Queries,
    Q: Query<SqlType: CompatibleType<R, Pg, SqlType = S>> + QueryFragment<Pg> + QueryId + Sync,
    R: FromSqlRow<S, Pg> + Send + 'static,
    S: 'static,
    Pg: QueryMetadata<Q::SqlType>,
{
    let mut conflicts = Conflicts::on(conn);
    loop {
        match conn.load(statement).await {
            Ok(rows) => return Ok(rows),
            Err(error) if conflicts.retry(&error) => {}
            Err(error) => return Err(Error::Database(error)),
        }
    }
}

/// Sends a statement that changes rows. Returns `true` if it changed any.
pub(super) async fn change<Q, D>(conn: &mut D, statement: &Q) -> Result<bool, Error>
where
    D: Queries,
    Q: QueryFragment<Pg> + QueryId + Sync,
{
    let mut conflicts = Conflicts::on(conn);
    loop {
        match conn.count(statement).await {
            Ok(rows) => return Ok(rows > 0),
            Err(error) if conflicts.retry(&error) => {}
            Err(error) => return Err(Error::Database(error)),
        }
    }
}
