use advisory_runtime::{Pool, PoolError, advisory_lock};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

crate::guide::page!("connections", 5);

#[tokio::test]
async fn a_call_takes_its_connection_from_the_primary() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8); INSERT INTO booking VALUES (7)")
        .await;
    let databases = Databases {
        primary: db.deadpool(1),
        standby: db.deadpool(1),
    };
    assert_eq!(clear(&databases, 7).await.unwrap(), 1);
    assert_eq!(databases.standby.status().size, 0);
    db.until_no_locks().await;
}
