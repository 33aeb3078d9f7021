//! Behind Odyssey in transaction mode: transaction-level locks exclude, and leases and claims work with its prepared statements.

use crate::bookings::{book, committed};
use crate::{claims, lease};
use advisory_runtime::claim::{self, OnErr};
use advisory_runtime::lease::Leases;
use advisory_runtime::{Error, Pool as _, Request, Wait, xact};
use advisory_tests::{Database, Odyssey, left_out};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;

const RULES: &str =
    "pool \"transaction\"\npool_size 3\npool_reserve_prepared_statement yes\npool_discard no";

/// Odyssey, and a pool of connections through it.
async fn odyssey(db: &Database) -> Option<(Odyssey, Pool<AsyncPgConnection>)> {
    let started = Odyssey::start(db, RULES).await;
    let odyssey = started.map_err(|why| left_out("odyssey", why)).ok()?;
    let manager = AsyncDieselConnectionManager::new(odyssey.url(db));
    Some((odyssey, Pool::builder(manager).max_size(3).build().unwrap()))
}

#[tokio::test]
async fn transaction_level_locks_exclude_behind_odyssey() {
    let db = crate::bookings::database().await;
    let Some((_odyssey, pool)) = odyssey(&db).await else {
        return;
    };
    let (mut one, mut other) = (pool.get().await.unwrap(), pool.get().await.unwrap());
    for wait in [
        Wait::Session,
        Wait::Never,
        Wait::For(std::time::Duration::from_secs(5)),
    ] {
        let held = xact::begin(&mut one, Request::new(7).wait(wait))
            .await
            .unwrap();
        let missed = xact::begin(&mut other, Request::new(7).wait(Wait::Never)).await;
        let error = missed.map(drop).unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(db.locks().await, []);
    }
    assert!(book(&mut one, 1, "Ada").await.unwrap());
    assert!(!book(&mut other, 1, "Eve").await.unwrap());
    assert_eq!(committed(&db, 1).await, 1);
}

#[tokio::test]
async fn leases_and_claims_work_behind_odyssey() {
    let db = lease::database().await;
    let Some((_odyssey, pool)) = odyssey(&db).await else {
        return;
    };
    let leases = Leases::new(pool);
    for _ in 0..3 {
        let held = leases.acquire(lease::key("k")).await.unwrap();
        let missed = leases.acquire(lease::key("k").wait(Wait::Never)).await;
        assert!(missed.is_err(), "granted twice");
        held.finish(Ok::<_, advisory_runtime::lease::Error>(()))
            .await
            .unwrap();
    }

    let db = claims::database(5).await;
    let Some((_odyssey, pool)) = odyssey(&db).await else {
        return;
    };
    for _ in 0..5 {
        let mut conn = pool.connection().await.unwrap();
        let job = claims::next(&mut conn).await;
        drop(conn);
        let ended = claim::run(&pool, &job, OnErr::Fail, async {
            Ok::<_, claim::Error>(())
        });
        ended.await.unwrap();
    }
    let left = "SELECT count(*) FROM sync_jobs WHERE completed_at IS NULL";
    assert_eq!(db.count(left).await, 0);
}
