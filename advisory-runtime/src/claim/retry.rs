//! Sends statements, and sends them again after a conflict.

use super::Error;
use super::sql::Statement;
use super::table::Claim;
use crate::driver::{Queries, depth};
use crate::renewal::is_conflict;
use diesel::deserialize::QueryableByName;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;

/// The tries left after conflicts under a stricter isolation level. Each conflict means that another statement succeeded.
pub(super) struct Retries(usize);

impl Retries {
    /// None inside a transaction, which a conflict aborts.
    pub(super) fn on<D: Queries>(conn: &mut D) -> Self {
        let is_outside = matches!(depth(conn), Ok(None));
        Self(if is_outside { 99 } else { 0 })
    }

    /// Whether to send the failed statement again.
    pub(super) fn retry(&mut self, error: &DieselError) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left && is_conflict(error)
    }
}

/// Sends a statement that returns rows.
pub(super) async fn load<T, K, R, D>(
    conn: &mut D,
    statement: &Statement<'_, T, K>,
) -> Result<Vec<R>, Error>
where
    D: Queries,
    T: Claim,
    K: QueryFragment<Pg> + Send + Sync,
    R: QueryableByName<Pg> + Send + 'static,
{
    let mut retries = Retries::on(conn);
    loop {
        match conn.load(statement).await {
            Ok(rows) => return Ok(rows),
            Err(error) if retries.retry(&error) => {}
            Err(error) => return Err(Error::Database(error)),
        }
    }
}

/// Sends a statement that changes the row of a claim; `false` if the claim was not held any more.
pub(super) async fn change<T, K, D>(
    conn: &mut D,
    statement: &Statement<'_, T, K>,
) -> Result<bool, Error>
where
    D: Queries,
    T: Claim,
    K: QueryFragment<Pg> + Send + Sync,
{
    let mut retries = Retries::on(conn);
    loop {
        match conn.count(statement).await {
            Ok(rows) => return Ok(rows > 0),
            Err(error) if retries.retry(&error) => {}
            Err(error) => return Err(Error::Database(error)),
        }
    }
}
