//! The table and the locked functions that several tests use.

use advisory_runtime::{Error, Isolation, LockGuard, advisory_lock};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, RunQueryDsl, TransactionManager};

/// The number of the lock on a room: SHA-256 of `room:<room>`.
pub(crate) fn key_of(room: i64) -> i64 {
    advisory_pattern::Derivation::Sha256.key(&format!("room:{room}"))
}

/// A database with an empty table of bookings.
pub(crate) async fn database() -> Database {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8 NOT NULL, guest text NOT NULL)")
        .await;
    db
}

pub(crate) async fn insert(
    conn: &mut AsyncPgConnection,
    room: i64,
    guest: &str,
) -> QueryResult<usize> {
    diesel::sql_query("INSERT INTO booking VALUES ($1, $2)")
        .bind::<diesel::sql_types::BigInt, _>(room)
        .bind::<diesel::sql_types::Text, _>(guest)
        .execute(conn)
        .await
}

pub(crate) async fn execute(conn: &mut AsyncPgConnection, sql: &str) -> QueryResult<usize> {
    diesel::sql_query(sql).execute(conn).await
}

/// Books the room unless it is taken.
#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
pub(crate) async fn book(
    conn: &mut AsyncPgConnection,
    room: i64,
    guest: &str,
) -> QueryResult<bool> {
    if bookings(conn, room).await? > 0 {
        return Ok(false);
    }
    insert(conn, room, guest).await?;
    Ok(true)
}

pub(crate) async fn bookings(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i64> {
    use diesel::sql_types::BigInt;
    diesel::dsl::sql::<BigInt>("SELECT count(*) FROM booking WHERE room = ")
        .bind::<BigInt, _>(room)
        .get_result(conn)
        .await
}

/// Runs steps in a transaction of diesel-async, with functions that all of its versions have: before 0.9 `transaction` takes other
/// closures.
pub(crate) async fn in_transaction<R, E: From<DieselError>>(
    conn: &mut AsyncPgConnection,
    steps: impl AsyncFnOnce(&mut AsyncPgConnection) -> Result<R, E>,
) -> Result<R, E> {
    AnsiTransactionManager::begin_transaction(conn).await?;
    match steps(conn).await {
        Ok(result) => {
            AnsiTransactionManager::commit_transaction(conn).await?;
            Ok(result)
        }
        Err(error) => {
            drop(AnsiTransactionManager::rollback_transaction(conn).await);
            Err(error)
        }
    }
}

/// All bookings of a room that were committed.
pub(crate) async fn committed(db: &Database, room: i64) -> i64 {
    db.count(&format!("SELECT count(*) FROM booking WHERE room = {room}"))
        .await
}

/// Ends a call whose body succeeded.
pub(crate) async fn finish(held: LockGuard<'_, AsyncPgConnection>) {
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

pub(crate) fn is_serialization_failure(error: &Error) -> bool {
    use diesel::result::DatabaseErrorKind::SerializationFailure;
    matches!(error, Error::Database(diesel::result::Error::DatabaseError(kind, _)) if matches!(kind, SerializationFailure))
}

/// A SERIALIZABLE call can fail because of an earlier one on its key that PostgreSQL has not yet marked as ended when it releases
/// the advisory lock. Without the lock, many more calls fail.
pub(crate) fn assert_few_serialization_failures(
    isolation: Isolation,
    failures: usize,
    calls: usize,
) {
    eprintln!("{isolation:?}: {failures} of {calls} calls on one key failed with 40001");
    let limit = match isolation {
        Isolation::Serializable => calls / 50,
        _ => 0,
    };
    assert!(failures <= limit, "{isolation:?}: {failures} of {calls}");
}
