//! Behind Odyssey in transaction mode: transaction-level locks exclude, and leases and claims work
//! with its prepared statements.

use crate::calls::book;
use crate::sync_job;
use crate::sync_job::SyncJob;
use advisory_runtime::claim::{self, End};
use advisory_runtime::lease::Leases;
use advisory_runtime::{Error, Pool as _, Request, Wait, xact};
use advisory_tests::bookings::committed;
use advisory_tests::dropped_call::WAITS;
use advisory_tests::{Database, Odyssey, assert_error, leases, left_out};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;
use tokio::task::JoinSet;

const RULES: &str =
    "pool \"transaction\"\npool_size 3\npool_reserve_prepared_statement yes\npool_discard no";

const CLIENTS: usize = 6;

/// Odyssey, and a pool of connections through it.
async fn odyssey(db: &Database) -> Option<(Odyssey, Pool<AsyncPgConnection>)> {
    let started = Odyssey::start(db, RULES).await;
    let odyssey = started.map_err(|why| left_out("odyssey", why)).ok()?;
    let pool = Database::deadpool_at(odyssey.url(db), CLIENTS);
    Some((odyssey, pool))
}

#[tokio::test]
async fn transaction_level_locks_exclude_behind_odyssey() {
    let db = advisory_tests::bookings::database().await;
    let Some((_odyssey, pool)) = odyssey(&db).await else {
        return;
    };
    let (mut one, mut other) = (pool.get().await.unwrap(), pool.get().await.unwrap());
    for wait in WAITS {
        let held = xact::begin(&mut one, Request::new(7).wait(wait))
            .await
            .unwrap();
        let missed = xact::begin(&mut other, Request::new(7).wait(Wait::Never)).await;
        assert_error!(missed, NotAvailable);
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(db.locks().await, []);
    }
    assert!(book(&mut one, 1, "Ada").await.unwrap());
    assert!(!book(&mut other, 1, "Eve").await.unwrap());
    assert_eq!(committed(&db, 1).await, 1);
}

/// More clients than server sessions, so that their statements go to any of these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_claims_work_behind_odyssey() {
    let db = leases::database().await;
    let Some((_odyssey, pool)) = odyssey(&db).await else {
        return;
    };
    let mut bodies = JoinSet::new();
    for _ in 0..CLIENTS {
        let leases = Leases::new(pool.clone());
        bodies.spawn(async move {
            for _ in 0..3 {
                let held = leases
                    .acquire(leases::key("k").wait(Wait::Forever))
                    .await
                    .unwrap();
                let ended = held.finish(Ok::<_, advisory_runtime::lease::Error>(()));
                ended.await.unwrap();
            }
        });
    }
    bodies.join_all().await;

    let db = sync_job::database(20).await;
    let Some((_odyssey, pool)) = odyssey(&db).await else {
        return;
    };
    let mut workers = JoinSet::new();
    for _ in 0..CLIENTS {
        let pool = pool.clone();
        workers.spawn(async move {
            while let Some(job) = {
                let mut conn = pool.connection().await.unwrap();
                claim::next::<SyncJob>("worker")
                    .first(&mut conn)
                    .await
                    .unwrap()
            } {
                let ended = claim::run(&pool, &job, End::Fail, async { Ok::<_, claim::Error>(()) });
                ended.await.unwrap();
            }
        });
    }
    workers.join_all().await;
    let left = "SELECT count(*) FROM sync_jobs WHERE completed_at IS NULL";
    assert_eq!(db.count(left).await, 0);
}
