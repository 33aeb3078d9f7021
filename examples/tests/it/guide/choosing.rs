use advisory_runtime::advisory_lock;
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

crate::guide::runs_the_page!("README", "choosing.rs");

/// One booking per room and day.
#[advisory_lock(key = "booking:<room>:<day>", scope = "xact")]
async fn book(conn: &mut AsyncPgConnection, room: i64, day: &str) -> QueryResult<usize> {
    // A transaction is open, and the lock is held until it has committed.
    let insert = "INSERT INTO booking SELECT $1, $2 WHERE NOT EXISTS \
                  (SELECT FROM booking WHERE room = $1 AND day = $2)";
    let insert = diesel::sql_query(insert)
        .bind::<BigInt, _>(room)
        .bind::<Text, _>(day);
    insert.execute(conn).await
}

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
