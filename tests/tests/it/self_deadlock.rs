//! Async Diesel: calls that wait for a lock or a turn that their own task holds, or seems to hold.

use crate::calls::{RoomLock, book, book_or_busy, book_patiently};
use advisory_runtime::{Error, advisory_lock, xact};
use advisory_tests::bookings::{database, execute, key_of};
use advisory_tests::poolers::{bouncer, connect};
use advisory_tests::{assert_error, debug_checks_are_on};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::Notify;

/// Books with a second call inside the body of the first, on another connection.
#[advisory_lock(key = "room:<room>", name = "room")]
async fn book_inside(
    conn: &mut AsyncPgConnection,
    other: &mut AsyncPgConnection,
    room: i64,
) -> QueryResult<bool> {
    execute(conn, "SELECT 1").await?;
    book(other, room, "Ada").await
}

/// The check is of the running body.
#[tokio::test]
async fn calls_of_one_task_at_the_same_time_are_not_nested() {
    let db = database().await;
    let (mut one, mut two) = (db.connect().await, db.connect().await);
    let beside = Duration::from_secs(30);
    let (first, second) = tokio::join!(
        book_or_busy(&mut one, 7, beside),
        book_or_busy(&mut two, 7, beside)
    );
    assert_eq!([first, second], [Ok(1), Ok(1)]);
    db.until_quiet().await;
}

/// A third session holds the number in the other database, and releases it.
#[tokio::test]
async fn a_wait_for_a_third_session_of_another_database_is_no_deadlock() {
    let (db, elsewhere) = (database().await, database().await);
    let (mut one, mut far) = (db.connect().await, elsewhere.connect().await);
    let mut third = elsewhere.connect().await;
    let held = xact::begin(&mut third, key_of(7)).await.unwrap();
    let (end, ()) = tokio::join!(book_inside(&mut one, &mut far, 7), async {
        elsewhere.until_waiting(key_of(7)).await;
        held.finish(Ok::<_, Error>(())).await.unwrap();
    });
    assert_eq!(end, Ok(true));
    elsewhere.until_quiet().await;
}

/// The queue of a number is one for all databases: its turn comes when the call that has it ends.
#[tokio::test]
async fn a_queued_call_for_another_database_waits_for_its_turn() {
    #[advisory_lock(key = "turn:<room>", name = "turn")]
    async fn outer(
        conn: &mut AsyncPgConnection,
        elsewhere: &deadpool::Pool<AsyncPgConnection>,
        room: i64,
        begun: &Notify,
    ) -> Result<(), Error> {
        execute(conn, "SELECT 1").await?;
        begun.notify_one();
        inner(elsewhere, room, &Notify::new(), &ended()).await
    }
    #[advisory_lock(key = "turn:<room>", name = "turn", pool = pool, queue = 5)]
    async fn inner(
        pool: &deadpool::Pool<AsyncPgConnection>,
        room: i64,
        begun: &Notify,
        end: &Notify,
    ) -> Result<(), Error> {
        execute(conn, "SELECT 1").await?;
        begun.notify_one();
        end.notified().await;
        Ok(())
    }
    fn ended() -> Notify {
        let end = Notify::new();
        end.notify_one();
        end
    }
    let (db, elsewhere) = (database().await, database().await);
    let (mut one, pool) = (db.connect().await, elsewhere.deadpool(2));
    let (begun, end) = (Notify::new(), Notify::new());
    let mut third = pin!(inner(&pool, 7, &begun, &end));
    tokio::select! {
        end = &mut third => panic!("it has ended: {end:?}"),
        () = begun.notified() => {}
    }
    // It asks for its turn in the poll that says so.
    let mut nested = pin!(outer(&mut one, &pool, 7, &begun));
    tokio::select! {
        end = &mut nested => panic!("it has not waited: {end:?}"),
        () = begun.notified() => {}
    }
    end.notify_one();
    let (third, nested) = tokio::join!(third, nested);
    third.unwrap();
    nested.unwrap();
}

#[tokio::test]
async fn a_call_that_polls_for_its_own_tasks_lock_is_reported() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    #[advisory_lock(key = "room:<room>", name = "room")]
    async fn outer(
        conn: &mut AsyncPgConnection,
        other: &mut AsyncPgConnection,
        room: i64,
    ) -> Result<bool, Error> {
        execute(conn, "SELECT 1").await?;
        book_patiently(other, room).await
    }
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    assert_error!(outer(&mut conn, &mut other, 7).await, SelfDeadlock);
    db.until_quiet().await;
}

/// Only the process of the connection that holds the lock must be known.
#[tokio::test]
async fn a_pooler_does_not_hide_a_wait_for_the_tasks_own_lock() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let Some(bouncer) = bouncer(&db, "pool_mode = transaction").await else {
        return;
    };
    let mut direct = db.connect().await;
    let mut pooled = connect(&bouncer.url(&db), 1).await;
    let ended = book_inside(&mut direct, &mut pooled[0], 7).await;
    assert_error!(ended, SelfDeadlock);
    db.until_quiet().await;
}

/// A session gets its own lock again at once.
#[tokio::test]
async fn a_call_that_polls_on_the_connection_of_its_own_lock_gets_it() {
    #[advisory_lock(key = "room:<room>", name = "room")]
    async fn outer(conn: &mut AsyncPgConnection, room: i64) -> Result<bool, Error> {
        execute(conn, "SELECT 1").await?;
        book_patiently(conn, room).await
    }
    let db = database().await;
    let mut conn = db.connect().await;
    assert!(outer(&mut conn, 7).await.unwrap());
    db.until_quiet().await;
}

#[tokio::test]
async fn a_wait_for_the_tasks_own_other_connection_is_reported() {
    #[advisory_lock(key = "outer-of-mid:<id>")]
    async fn outer(
        conn: &mut AsyncPgConnection,
        other: &mut AsyncPgConnection,
        id: i64,
    ) -> Result<(), Error> {
        xact::lock(conn, RoomLock { room: id }).await?;
        let held = xact::begin(other, RoomLock { room: id }).await?;
        held.finish(Ok(())).await
    }
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    assert_error!(outer(&mut conn, &mut other, 9).await, SelfDeadlock);
}
