use advisory_runtime::{Error, advisory_lease, advisory_lock, lease};
use advisory_tests::Database;
use diesel_async::{
    AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection, pooled_connection::bb8::Pool,
};

crate::guide::page!("scopes", 1);

#[tokio::test]
async fn each_scope_runs_what_is_for_it() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (day int8); CREATE INDEX booking_day ON booking (day)")
        .await;
    let mut conn = db.connect().await;
    lease::Table::new().set_up(&mut conn).await.unwrap();
    book(&mut conn, 7).await.unwrap();
    reindex(&mut conn).await.unwrap();
    refund(&db.bb8(1).await, 7).await.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 1);
    db.until_no_locks().await;
}
