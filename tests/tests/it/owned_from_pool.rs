//! Locks that own a connection of a pool; while the call waits, the connection is in the pool.

use advisory_runtime::{Connection as _, Error, Pool, Request, Wait, blocking, session};
use advisory_tests::futures::{dropped, is_ready_within, spawn, spawn_blocking};
use advisory_tests::{Database, assert_error};
use diesel::r2d2;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(5);

/// Waits until the last statement of a connection that is idle was a try.
async fn until_it_has_tried(db: &Database) {
    let tries = "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'idle' \
                 AND datname = current_database() AND query LIKE '%pg_try_advisory_lock%')";
    db.until_empty(Duration::from_secs(30), "a missed try", tries)
        .await;
}

/// Whether the pool's only connection is in the pool, and works.
async fn works<P: Pool>(pool: &P) {
    let one = tokio::time::timeout(Duration::from_secs(20), pool.connection());
    let mut conn = one.await.unwrap().unwrap();
    advisory_tests::bookings::execute(conn.pg(), "SELECT 1")
        .await
        .unwrap();
}

/// On a pool of one connection.
async fn between_two_tries<P: Pool + 'static>(db: &Database, pool: &P) {
    let holder = session::acquire_owned(db.connect().await, 7).await.unwrap();
    let waiting = session::acquire_from(pool, Request::new(7).poll(HOUR));
    dropped(waiting, async {
        until_it_has_tried(db).await;
        works(pool).await;
    })
    .await;
    // While the pool has no connection.
    let taken = pool.connection().await.unwrap();
    let mut waiting = Box::pin(session::acquire_from(pool, 8));
    assert!(!is_ready_within(1, waiting.as_mut()).await);
    drop(waiting);
    drop(taken);
    works(pool).await;
    assert_eq!(db.locks().await.len(), 1);
    // It gets the lock when it is free.
    let waiting = session::acquire_from(pool, Request::new(7).poll(SOON));
    let (lock, ()) = tokio::join!(waiting, async {
        until_it_has_tried(db).await;
        drop(holder.finish(Ok::<_, Error>(())).await.unwrap());
    });
    let mut lock = lock.unwrap();
    lock.check().await.unwrap();
    assert_eq!(db.locks().await.len(), 1);
    drop(lock.finish(Ok::<_, Error>(())).await.unwrap());
    works(pool).await;
    db.until_no_locks().await;
}

#[tokio::test]
async fn between_two_tries_the_pool_has_the_connection() {
    let db = advisory_tests::bookings::database().await;
    between_two_tries(&db, &db.deadpool(1)).await;
    between_two_tries(&db, &db.bb8(1).await).await;
}

/// The call is dropped after each of its polls, with the lock free and with the lock held.
async fn dropped_at_each_poll<P: Pool + 'static>(db: &Database, pool: &P) {
    let holder = session::acquire_owned(db.connect().await, 7).await.unwrap();
    // A refused try has fewer polls than this, and a successful one ends the call.
    for (key, most) in [(7, 16), (8, 60)] {
        let mut was_ready = false;
        for polls in 0..most {
            let mut waiting = Box::pin(session::acquire_from(pool, Request::new(key).poll(SOON)));
            was_ready = is_ready_within(polls, waiting.as_mut()).await;
            drop(waiting);
            works(pool).await;
            db.until_empty(
                Duration::from_secs(20),
                "a lock that is left",
                "SELECT 'held' FROM pg_locks WHERE locktype = 'advisory' AND objid = 8 AND \
                 database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            )
            .await;
            assert_eq!(db.locks().await.len(), 1);
            if was_ready {
                break;
            }
        }
        assert_eq!(was_ready, key == 8);
    }
    drop(holder);
    db.until_no_locks().await;
}

#[tokio::test]
async fn a_dropped_call_leaves_no_lock_and_a_pool_that_works() {
    let db = advisory_tests::bookings::database().await;
    dropped_at_each_poll(&db, &db.deadpool(1)).await;
    dropped_at_each_poll(&db, &db.bb8(1).await).await;
}

#[tokio::test]
async fn it_is_owned_and_waits_as_long_as_the_request_says() {
    fn is_free<T: Send + 'static>(value: T) -> T {
        value
    }
    let db = advisory_tests::bookings::database().await;
    let pool = db.bb8(2).await;
    let lock = {
        let pool = pool.clone();
        let task = spawn(async move { session::acquire_from(&pool, 7).await });
        is_free(task.await.unwrap().unwrap())
    };
    let never = Request::new(7).wait(Wait::Never);
    assert_error!(session::acquire_from(&pool, never).await, NotAvailable);
    let short = Request::new(7).wait(10 * SOON).poll(SOON);
    assert_error!(session::acquire_from(&pool, short.clone()).await, TimedOut);
    let many = session::acquire_from(&pool, Request::all([8, 9]).shared()).await;
    assert_eq!(db.locks().await.len(), 3);
    drop(many.unwrap().finish(Ok::<_, Error>(())).await.unwrap());
    let task = spawn(lock.finish(Ok::<_, Error>(())));
    drop(task.await.unwrap().unwrap());
    db.until_no_locks().await;
}

/// The pool's own error, like that of a pool whose timeout is over.
#[tokio::test]
async fn a_pool_that_has_no_connection_is_an_error() {
    let db = advisory_tests::bookings::database().await;
    let pool = db.deadpool(1);
    pool.close();
    assert_error!(session::acquire_from(&pool, 7).await, Pool);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_pool_has_the_connection_between_two_tries() {
    let db = advisory_tests::bookings::database().await;
    let pool = db.r2d2(1);
    let holder = session::acquire_owned(db.connect().await, 7).await.unwrap();
    let (mut waiting, other) = (Vec::new(), pool.clone());
    // Two that wait, on one connection.
    for key in [7, 7] {
        let pool: r2d2::Pool<_> = pool.clone();
        waiting.push(spawn_blocking(move || {
            let lock = blocking::session::acquire_from(&pool, Request::new(key).poll(SOON))?;
            lock.finish(Ok::<_, Error>(())).map(drop)
        }));
    }
    until_it_has_tried(&db).await;
    let executed = spawn_blocking(move || {
        advisory_tests::blocking::execute(&mut other.get().unwrap(), "SELECT 1").unwrap();
    });
    executed.await.unwrap();
    drop(holder.finish(Ok::<_, Error>(())).await.unwrap());
    for one in waiting {
        one.await.unwrap().unwrap();
    }
    db.until_no_locks().await;
    let second = db.r2d2(1);
    let never = spawn_blocking(move || {
        let lock = blocking::session::acquire_from(&pool, 9).unwrap();
        let never = Request::new(9).wait(Wait::Never);
        let missed = blocking::session::acquire_from(&second, never);
        (missed.map(drop).unwrap_err(), lock)
    });
    let (error, lock) = never.await.unwrap();
    assert_error!(error, NotAvailable);
    spawn_blocking(move || drop(lock)).await.unwrap();
    db.until_no_locks().await;
}
