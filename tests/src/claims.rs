//! Claims rows of a test's types, which the server must not refuse.

use crate::assert_matches;
use crate::bookings::in_transaction;
use advisory_runtime::claim::{self, Claim, Claimed, Error, KeyValue};
use diesel::result::Error as DieselError;
use diesel_async::AsyncPgConnection;

/// Claims the first row, if there is one.
pub async fn first<T: Claim>(conn: &mut AsyncPgConnection) -> Option<Claimed<T>> {
    claim::next("worker").first(conn).await.unwrap()
}

/// Claims the row with a key, if it can be claimed.
pub async fn by_key<T: Claim>(
    conn: &mut AsyncPgConnection,
    key: impl KeyValue<T::Key>,
) -> Option<Claimed<T>> {
    claim::next("worker").key(key).first(conn).await.unwrap()
}

/// Claims at most `limit` rows, in their order.
pub async fn load<T: Claim>(conn: &mut AsyncPgConnection, limit: u32) -> Vec<Claimed<T>> {
    claim::next("worker").load(conn, limit).await.unwrap()
}

/// Runs steps in a transaction, and rolls it back.
pub async fn roll_back(
    conn: &mut AsyncPgConnection,
    steps: impl AsyncFnOnce(&mut AsyncPgConnection) -> Result<(), Error>,
) {
    let rolled_back = in_transaction(conn, async |conn| {
        steps(conn).await.unwrap();
        Err::<(), _>(Error::Database(DieselError::RollbackTransaction))
    });
    // Another error is that of a transaction that did not begin.
    assert_matches!(
        rolled_back.await,
        Err(Error::Database(DieselError::RollbackTransaction))
    );
}

/// The error of a body, with this message.
pub fn failure(message: &str) -> Error {
    Error::Database(DieselError::QueryBuilderError(message.into()))
}

/// Returns whether this is a [`failure`].
pub fn is_failure(error: &Error) -> bool {
    matches!(error, Error::Database(DieselError::QueryBuilderError(_)))
}
