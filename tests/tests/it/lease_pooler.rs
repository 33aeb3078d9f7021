//! Leases behind a pooler in transaction mode that tracks prepared statements, while each message goes to another backend.

use crate::lease::{database, expire, key};
use advisory_runtime::Error;
use advisory_runtime::lease::{Leases, Request, Table};
use advisory_tests::{Bouncer, left_out};
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::Duration;
use tokio::task::JoinSet;

const WHAT: &str = "leases behind a pooler";
const TTL: Duration = Duration::from_secs(60);
const SETTINGS: &str = "pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1\n\
                        max_prepared_statements = 50";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_behind_a_pooler_exclude_fence_complete_and_are_renewed() {
    let db = database().await;
    db.run("CREATE TABLE counter AS SELECT 0::int8 AS n").await;
    let bouncer = match Bouncer::start_tracking(&db, SETTINGS).await {
        Ok(bouncer) => bouncer,
        Err(why) => return left_out(WHAT, why),
    };
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(bouncer.url(&db));
    let pool = Pool::builder(manager).max_size(4).build().unwrap();
    let leases = Leases::new(pool.clone());
    let db = std::sync::Arc::new(db);
    let mut bodies = JoinSet::new();
    for _ in 0..6 {
        let (leases, db) = (leases.clone(), std::sync::Arc::clone(&db));
        bodies.spawn(async move {
            for _ in 0..3 {
                let mut held = leases.acquire(Request::text("k")).await.unwrap();
                let added = held.run(async {
                    let n = db.count("SELECT n FROM counter").await;
                    db.run(&format!("UPDATE counter SET n = {}", n + 1)).await;
                });
                added.await.unwrap();
                held.finish(Ok::<_, Error>(())).await.unwrap();
            }
        });
    }
    bodies.join_all().await;
    assert_eq!(db.count("SELECT n FROM counter").await, 18);
    let (mut a, mut b) = (pool.get().await.unwrap(), pool.get().await.unwrap());
    let table = Table::new();
    let old = table.acquire(&mut a, key("k").keep(TTL)).await.unwrap();
    assert!(table.renew(&mut b, &old, TTL * 2).await.unwrap());
    expire(&db).await;
    let new = table.acquire(&mut b, key("k").keep(TTL)).await.unwrap();
    assert!(new.token() > old.token());
    let late = a.transaction(async |a| old.fence(a).await);
    assert!(matches!(late.await, Err(Error::LockLost { .. })));
    let done = b.transaction(async |b| {
        new.fence(b).await?;
        new.complete(b).await
    });
    done.await.unwrap();
    let error = table.acquire(&mut a, key("k")).await.unwrap_err();
    assert!(error.is_busy(), "{error:?}");
    let row = table.find_text(&mut a, "k").await.unwrap().unwrap();
    assert!(row.is_kept);
    table.sweep(&mut a).await.unwrap();
    db.until_quiet().await;
}
