use advisory_tests::Database;
use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use diesel::ConnectionError;
use diesel_async::pooled_connection::PoolableConnection;
use diesel_async::{AsyncConnection, AsyncPgConnection};

crate::guide::page!("connections", 6);

#[tokio::test]
async fn a_call_uses_the_manager_and_closed_connections_are_replaced() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8)").await;
    let url = db.url().to_owned();
    let pool = deadpool::managed::Pool::builder(Primary { url });
    let pool = pool.max_size(1).build().unwrap();
    super::book(&mut pool.get().await.unwrap(), 7)
        .await
        .unwrap();
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 1);
    closed_connections_are_replaced(&pool).await;
    super::book(&mut pool.get().await.unwrap(), 7)
        .await
        .unwrap();
}
