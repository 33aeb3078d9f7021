use advisory_runtime::advisory_lock;
use advisory_tests::Database;
use diesel::{QueryResult, sql_types::BigInt};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

crate::guide::page!("guarantees", 1);

#[tokio::test]
async fn a_booking_is_committed() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8)").await;
    assert_eq!(book(&mut db.connect().await, 7).await, Ok(1));
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 1);
    db.until_no_locks().await;
}
