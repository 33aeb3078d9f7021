use advisory_runtime::advisory_lock;
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

crate::guide::page!("README", 1);

#[tokio::test]
async fn one_of_two_calls_books_the_room() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8, day text)").await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let day = "2026-01-15";
    let (a, b) = tokio::join!(book(&mut a, 7, day), book(&mut b, 7, day));
    assert_eq!(a.unwrap() + b.unwrap(), 1);
    db.until_no_locks().await;
}
