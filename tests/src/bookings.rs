//! The table of bookings, what tests do in it, and the key of the lock on a room.

use crate::Database;
use advisory_runtime::{Error, Isolation, LockGuard};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, RunQueryDsl, TransactionManager};

/// Each isolation level.
pub const LEVELS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

/// The result of a body that succeeds, or fails.
pub fn outcome(is_ok: bool) -> Result<(), Error> {
    diesel_outcome(is_ok).map_err(Error::Database)
}

/// Like [`outcome`], with Diesel's error.
pub fn diesel_outcome(is_ok: bool) -> QueryResult<()> {
    is_ok.then_some(()).ok_or(DieselError::NotFound)
}

/// The number of the lock on a room: SHA-256 of `room:<room>`.
pub fn key_of(room: i64) -> i64 {
    advisory_pattern::Derivation::Sha256.key(&format!("room:{room}"))
}

/// A database with an empty table of bookings.
pub async fn database() -> Database {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8 NOT NULL, guest text NOT NULL)")
        .await;
    db
}

/// Inserts a booking.
pub async fn insert(conn: &mut AsyncPgConnection, room: i64, guest: &str) -> QueryResult<usize> {
    diesel::sql_query("INSERT INTO booking VALUES ($1, $2)")
        .bind::<diesel::sql_types::BigInt, _>(room)
        .bind::<diesel::sql_types::Text, _>(guest)
        .execute(conn)
        .await
}

/// Runs a statement.
pub async fn execute(conn: &mut AsyncPgConnection, sql: &str) -> QueryResult<usize> {
    diesel::sql_query(sql).execute(conn).await
}

/// Runs a statement that succeeds.
pub async fn run(conn: &mut AsyncPgConnection, sql: &str) {
    let ran = execute(conn, sql).await;
    ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

/// Counts the bookings of a room.
pub async fn bookings(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i64> {
    use diesel::sql_types::BigInt;
    diesel::dsl::sql::<BigInt>("SELECT count(*) FROM booking WHERE room = ")
        .bind::<BigInt, _>(room)
        .get_result(conn)
        .await
}

/// Runs steps in a transaction, with functions that every version of diesel-async has: before 0.9,
/// `transaction` takes other closures.
pub async fn in_transaction<R, E: From<DieselError>>(
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
pub async fn committed(db: &Database, room: i64) -> i64 {
    db.count(&format!("SELECT count(*) FROM booking WHERE room = {room}"))
        .await
}

/// Ends a call whose body succeeded.
pub async fn finish(held: LockGuard<'_, AsyncPgConnection>) {
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

/// A database on which room 7 is locked by another session.
pub async fn busy() -> (Database, AsyncPgConnection, AsyncPgConnection) {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    // Not dropped: the session holds the lock until the test ends.
    execute(&mut holder, "BEGIN").await.unwrap();
    execute(
        &mut holder,
        &format!("SELECT pg_advisory_xact_lock({})", key_of(7)),
    )
    .await
    .unwrap();
    execute(&mut conn, "SET lock_timeout = '50ms'")
        .await
        .unwrap();
    (db, holder, conn)
}
