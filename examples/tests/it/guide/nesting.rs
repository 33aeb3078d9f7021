use advisory_runtime::{Error, LockKey, Request, advisory_lock, xact};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::result::Error::RollbackTransaction;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use std::time::Duration;

crate::guide::page!("nesting", 1);
crate::guide::page!("nesting", 2);

async fn account_of(_: &mut AsyncPgConnection, invoice: i64) -> QueryResult<i64> {
    Ok(invoice)
}

/// It is read under the lock.
async fn balance(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<i64> {
    use diesel::dsl::sql;
    let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()";
    let held: i64 = sql::<BigInt>(held).get_result(conn).await?;
    assert_eq!(held, 1, "account {id}");
    Ok(held)
}

#[tokio::test]
async fn two_rooms_are_booked_both_or_not() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8 PRIMARY KEY)").await;
    let (mut one, mut other) = (db.connect().await, db.connect().await);
    let (one, other) = tokio::join!(book_two(&mut one), book_two(&mut other));
    assert_ne!(one.is_ok(), other.is_ok());
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 2);
    let mut conn = db.connect().await;
    db.run("DELETE FROM booking WHERE room = 1").await;
    assert_eq!(book_two(&mut conn).await, Err(RollbackTransaction));
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 1);
}

#[tokio::test]
async fn a_lock_in_the_middle_is_held_where_the_balance_is_read() {
    let db = Database::create().await;
    pay(&mut db.connect().await, 7).await.unwrap();
    db.until_no_locks().await;
}
