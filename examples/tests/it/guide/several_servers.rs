//! The code of the guide's page on several servers.

use advisory_runtime::{Error, Key, advisory_lock, lock_key, xact};
use advisory_tests::Database;
use diesel::sql_types::BigInt;
use diesel_async::AsyncPgConnection;
use diesel_async::RunQueryDsl;
use diesel_async::pooled_connection::deadpool::Pool;

crate::guide::page!("several-servers", 1);
crate::guide::page!("several-servers", 2);

/// On one server it is the lock without `at`.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_at_its_rows_is_the_same_on_one_server() {
    let db = Database::create().await;
    db.run("CREATE TABLE tenant AS SELECT 2::int8 AS id, false AS is_open")
        .await;
    let id = 2;
    let key = lock_key!("opening:<id: int>", name = "opening");
    let Key::BigInt(number) = key else {
        panic!("{key} is a pair")
    };
    let mut conn = db.connect().await;
    let held = xact::begin(&mut conn, key).await.unwrap();
    let pool = db.deadpool(2);
    let call = tokio::spawn(async move { open(&pool, id).await });
    db.until_waiting(number).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    call.await.unwrap().unwrap();
    let opened = "SELECT count(*) FROM tenant WHERE is_open";
    assert_eq!(db.count(opened).await, 1);
}

/// One database has a lock and its rows, and the other has neither.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_lives_where_its_rows_live() {
    let (even, odd) = (Database::create().await, Database::create().await);
    for db in [&even, &odd] {
        db.run(
            "CREATE TABLE tenant AS SELECT id, true AS is_open FROM generate_series(1, 2) AS id",
        )
        .await;
    }
    let shards = Shards {
        even: even.deadpool(2),
        odd: odd.deadpool(2),
    };
    let tenant_id = 2;
    let key = lock_key!("tenant:<tenant_id: int>", name = "tenant");
    let Key::BigInt(number) = key else {
        panic!("{key} is a pair")
    };
    // A lock with the same key on the wrong shard does not exclude it.
    let mut conn = odd.connect().await;
    let elsewhere = xact::begin(&mut conn, key).await.unwrap();
    close(&shards, tenant_id).await.unwrap();
    elsewhere.finish(Ok::<_, Error>(())).await.unwrap();
    let mut conn = even.connect().await;
    let held = xact::begin(&mut conn, key).await.unwrap();
    let call = tokio::spawn(async move { close(&shards, tenant_id).await });
    even.until_waiting(number).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    call.await.unwrap().unwrap();
    let closed = "SELECT count(*) FROM tenant WHERE NOT is_open";
    assert_eq!((even.count(closed).await, odd.count(closed).await), (1, 0));
}
