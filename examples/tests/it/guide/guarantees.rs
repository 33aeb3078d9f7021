use advisory_runtime::advisory_lock;
use advisory_tests::Database;
use diesel::{QueryResult, sql_types::BigInt};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

crate::guide::runs_the_page!("guarantees", "guarantees.rs");

#[advisory_lock(key = "room:<room>", name = "room", wait = "5s", max_hold = "30s")]
async fn book(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    let insert = diesel::sql_query("INSERT INTO booking VALUES ($1)");
    insert.bind::<BigInt, _>(room).execute(conn).await
}

#[tokio::test]
async fn a_booking_is_committed() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8)").await;
    assert_eq!(book(&mut db.connect().await, 7).await, Ok(1));
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 1);
    db.until_no_locks().await;
}
