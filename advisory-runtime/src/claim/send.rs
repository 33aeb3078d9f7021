//! How does a claim's statement reach the server?

use super::claimed::Returned;
use super::table::Claim;
use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{Query, QueryFragment, QueryId};
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sql_types::Untyped;
use diesel_async::{AsyncConnectionCore, AsyncPgConnection, RunQueryDsl};

use crate::driver::depth;

/// How often a statement is sent again after a conflict under a stricter level. Each conflict means that another statement has
/// succeeded.
const TRIES: usize = 100;

/// Sends a statement that claims rows.
pub(super) async fn take<T, Q>(
    conn: &mut AsyncPgConnection,
    statement: &Q,
) -> QueryResult<Vec<Returned<T>>>
where
    T: Claim,
    Q: Query<SqlType = Untyped> + QueryFragment<Pg> + QueryId + Send + Sync,
{
    let tries = tries(conn);
    for _ in 1..tries {
        match RunQueryDsl::load(statement, conn).await {
            Err(error) if is_conflict(&error) => {}
            result => return result,
        }
    }
    RunQueryDsl::load(statement, conn).await
}

/// Sends a statement that changes the row of a claim. Whether the claim was still held.
pub(super) async fn change<Q>(conn: &mut AsyncPgConnection, statement: &Q) -> QueryResult<bool>
where
    Q: QueryFragment<Pg> + QueryId + Send + Sync,
{
    let tries = tries(conn);
    let mut sent = conn.execute_returning_count(statement).await;
    for _ in 1..tries {
        match sent {
            Err(error) if is_conflict(&error) => {
                sent = conn.execute_returning_count(statement).await;
            }
            sent => return sent.map(|rows| rows > 0),
        }
    }
    sent.map(|rows| rows > 0)
}

/// Inside a transaction, the error has failed it.
fn tries(conn: &mut AsyncPgConnection) -> usize {
    match depth(conn) {
        Ok(None) => TRIES,
        _ => 1,
    }
}

fn is_conflict(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _)
    )
}
