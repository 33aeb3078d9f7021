use advisory_runtime::monitor::{self, Names};
use advisory_runtime::{Error, xact};
use advisory_tests::Database;
use diesel_async::AsyncPgConnection;
use std::time::Duration;

crate::guide::page!("watching", 1);

#[tokio::test]
async fn the_probe_is_quiet_where_a_wait_is_short() {
    let db = Database::create().await;
    let (mut holder, mut waiter) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let waiting = tokio::spawn(async move {
        let held = xact::begin(&mut waiter, 7).await?;
        held.finish(Ok::<_, Error>(())).await
    });
    db.until_waiting(7).await;
    assert!(!is_stuck(&mut db.connect().await).await.unwrap());
    held.finish(Ok::<_, Error>(())).await.unwrap();
    waiting.await.unwrap().unwrap();
}
