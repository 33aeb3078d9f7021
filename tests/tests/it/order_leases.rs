//! Leases in the order of locks, and a task that waits for its own.
#![cfg(debug_assertions)]

use advisory_runtime::lease::{Error, Leases, Request, Table};
use advisory_runtime::{PoolError, Wait, advisory_lease, advisory_lock};
use advisory_tests::leases::database;
use advisory_tests::lock_order::{edges, order};
use advisory_tests::{assert_matches, debug_checks_are_on};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::{Object, Pool};
use std::time::Duration;

#[advisory_lease(key = "mixed-lease:<id>", pool = pool, name = "mixed-lease")]
async fn leased_then_locked(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
    locked(pool, id).await
}

#[advisory_lock(key = "mixed-lock:<id>", name = "mixed-lock", conn = lent(pool).await?)]
async fn locked(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
    let _ = conn;
    Ok(())
}

#[advisory_lock(key = "mixed-lock:<id>", name = "mixed-lock", conn = lent(pool).await?)]
async fn locked_then_leased(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
    let _ = conn;
    leased(pool, id).await
}

#[advisory_lease(key = "mixed-lease:<id>", pool = pool, name = "mixed-lease")]
async fn leased(pool: &Pool<AsyncPgConnection>, id: i64) -> Result<(), Error> {
    Ok(())
}

async fn lent(pool: &Pool<AsyncPgConnection>) -> Result<Object<AsyncPgConnection>, PoolError> {
    pool.get().await.map_err(PoolError::new)
}

#[tokio::test]
async fn a_lease_and_a_lock_have_an_order() {
    let db = database().await;
    let pool = db.deadpool(3);
    leased_then_locked(&pool, 1).await.unwrap();
    assert_eq!(edges("mixed-"), ["mixed-lease:<id> > mixed-lock:<id>"]);
    assert!(order("mixed-").cycles.is_empty());
    locked_then_leased(&pool, 1).await.unwrap();
    let cycles = order("mixed-").cycles;
    assert_eq!(cycles.len(), 1);
    for end in cycles[0].iter().map(|edge| &edge.held) {
        assert_eq!(end.is_lease, end.lock.starts_with("mixed-lease"));
        assert!(end.place.contains("order_leases.rs:"), "{end:?}");
    }
}

#[advisory_lease(key = "own-lease:<id>", pool = first, name = "own-lease")]
async fn twice(
    first: &Leases<Pool<AsyncPgConnection>>,
    second: &Leases<Pool<AsyncPgConnection>>,
    id: i64,
    wait: Wait,
) -> Result<(), Error> {
    let key = Request::text(format!("own-lease:{id}"));
    let held = second.acquire(key.wait(wait)).await?;
    held.finish(Ok(())).await
}

#[tokio::test]
async fn a_task_that_waits_for_its_own_lease_is_reported() {
    let db = database().await;
    let leases = Leases::new(db.deadpool(2));
    if !debug_checks_are_on() {
        let wait = Wait::For(Duration::from_millis(30));
        let error = twice(&leases, &leases, 1, wait).await.unwrap_err();
        assert_matches!(error, Error::Held { .. });
        return;
    }
    for wait in [Wait::Forever, Wait::For(Duration::from_secs(30))] {
        let error = twice(&leases, &leases, 1, wait).await.unwrap_err();
        assert_matches!(error, Error::SelfDeadlock { .. });
    }
    let left = leases.list().await.unwrap();
    assert_eq!(left, [], "the outer one is released");
}

#[tokio::test]
async fn a_lease_not_waited_for_or_of_another_table_passes() {
    let db = database().await;
    let leases = Leases::new(db.deadpool(2));
    let error = twice(&leases, &leases, 1, Wait::Never).await.unwrap_err();
    assert_matches!(error, Error::Held { .. });
    let other = Table::new().named("other_lease").unwrap();
    other.set_up(&mut db.connect().await).await.unwrap();
    let other = Leases::new(db.deadpool(2)).table(other);
    twice(&leases, &other, 1, Wait::Forever).await.unwrap();
    // A lock that the body does not run under passes too.
    let held = leases.acquire(Request::text("own-lease:2")).await.unwrap();
    let error = leases.acquire(Request::text("own-lease:2").wait(Duration::from_millis(30)));
    assert_matches!(error.await, Err(Error::Held { .. }));
    drop(held);
}
