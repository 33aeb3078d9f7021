//! Locks: whom they exclude at each node, and deadlocks with rows.

use super::cluster::{assert_deadlock, cluster, execute, number, row};
use advisory_runtime::{Error, advisory_lock, session};
use advisory_tests::assert_error;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use tokio::sync::Barrier;

/// Reads all balances, and writes them with one more: two calls at once lose one of them.
#[advisory_lock(key = "citus-add", pool = pool)]
async fn add(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
    let balance = number(conn, "SELECT max(balance) AS number FROM citus_account").await;
    let write = format!("UPDATE citus_account SET balance = {}", balance + 1);
    execute(conn, &write).await?;
    Ok(())
}

#[advisory_lock(key = "citus-hold", name = "citus-hold", pool = pool, wait = "never")]
async fn hold<F: Future<Output = ()>>(
    pool: &Pool<AsyncPgConnection>,
    body: F,
) -> Result<(), Error> {
    let _: &mut _ = conn;
    body.await;
    Ok(())
}

#[advisory_lock(key = "citus-deadlock", name = "citus-deadlock", pool = pool)]
async fn lock_then_row(
    pool: &Pool<AsyncPgConnection>,
    each_has_one: &Barrier,
) -> Result<(), Error> {
    each_has_one.wait().await;
    execute(conn, "UPDATE citus_deadlock SET balance = 1 WHERE id = 1").await?;
    Ok(())
}

#[advisory_lock(key = "citus-deadlock", name = "citus-deadlock")]
async fn lock_in_transaction(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    let _: &mut _ = conn;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_through_the_coordinator_exclude_each_other() {
    const CALLS: i64 = 200;
    let Some(cluster) = cluster() else { return };
    cluster.accounts("citus_account").await;
    let pool = cluster.coordinator.pool(8);
    let calls = (0..8).map(|_| {
        let pool = pool.clone();
        tokio::spawn(async move {
            for _ in 0..CALLS / 8 {
                add(&pool).await.unwrap();
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let sum = "SELECT sum(balance)::int8 AS number FROM citus_account";
    let sum = cluster.coordinator.number(sum).await;
    assert_eq!(sum, 2 * CALLS);
    row(
        "calls through the coordinator that read, and write rows of two workers",
        &format!("{} of {CALLS} kept", sum / 2),
    );
}

#[tokio::test]
async fn a_call_through_a_worker_node_is_not_excluded() {
    let Some(cluster) = cluster() else { return };
    let (coordinator, worker) = (cluster.coordinator.pool(2), cluster.workers[0].pool(2));
    session::verify(&coordinator).await.unwrap();
    assert_error!(session::verify(&worker).await, NotCoordinator);
    hold(&coordinator, async {
        // In a task of its own: this one holds the lock.
        let others = [coordinator.clone(), worker.clone()]
            .map(|pool| tokio::spawn(async move { hold(&pool, async {}).await }));
        let [through_coordinator, through_worker] = others;
        let busy = through_coordinator.await.unwrap().unwrap_err();
        assert!(busy.is_busy(), "{busy:?}");
        through_worker.await.unwrap().unwrap();
    })
    .await
    .unwrap();
    row(
        "a call through a worker node, while one through the coordinator holds its lock",
        "not excluded; `session::verify` refuses the node",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_of_a_lock_and_a_row_is_found() {
    let Some(cluster) = cluster() else { return };
    cluster.accounts("citus_deadlock").await;
    let pool = cluster.coordinator.pool(2);
    let mut conn = cluster.coordinator.connect().await;
    let each_has_one = Barrier::new(2);
    let (one, other) = tokio::join!(
        lock_then_row(&pool, &each_has_one),
        conn.transaction(async |conn| {
            execute(conn, "UPDATE citus_deadlock SET balance = 2 WHERE id = 1").await?;
            each_has_one.wait().await;
            lock_in_transaction(conn).await
        })
    );
    assert_deadlock(one, other);
    row(
        "a lock and a row of a worker, in two orders",
        "one call ends with 40P01, the other goes on",
    );
}
