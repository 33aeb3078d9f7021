//! A lock that is not granted in the middle of a transaction: the error, and the state of the
//! transaction.

use crate::calls::RoomLock;
use advisory_runtime::{Error, Isolation, Request, Wait, xact};
use advisory_tests::bookings::{committed, database, execute, insert, key_of};
use advisory_tests::held_keys::keys;
use advisory_tests::{LockedKey, assert_error};
use diesel_async::AsyncConnection;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_refused_one_leaves_the_transaction_as_it_was() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    conn.transaction::<_, Error, _>(async |conn| {
        insert(conn, 1, "before").await?;
        let two = || Request::all([key_of(6), key_of(7)]);
        let missed = xact::lock(conn, two().wait(Wait::Never)).await.unwrap_err();
        assert_error!(missed, NotAvailable);
        assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(key_of(7))]);
        assert_error!(xact::lock(conn, two().wait(SHORT)).await, TimedOut);
        assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(key_of(7))]);
        execute(conn, "SET LOCAL lock_timeout = '50ms'").await?;
        let late = xact::lock(conn, RoomLock { room: 7 }).await.unwrap_err();
        assert_error!(late, TimedOut { lock, .. } if lock == "room:<room>");
        xact::lock(conn, Request::new(key_of(8)).wait(Wait::Never)).await?;
        assert_eq!(db.locks().await.len(), 2);
        insert(conn, 2, "behind").await.map_err(Error::from)
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 1).await, committed(&db, 2).await], [1, 1]);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test]
async fn outside_of_a_transaction_it_is_refused() {
    let db = database().await;
    let mut conn = db.connect().await;
    let error = xact::lock(&mut conn, key_of(7)).await.unwrap_err();
    assert_error!(error, NotInTransaction);
    assert_eq!(
        error.to_string(),
        format!(
            "advisory lock `{}` was requested outside of a transaction, where it would be released at once: call `lock` inside \
             `transaction`, or open one that holds it with `begin`",
            key_of(7)
        )
    );
    // A test transaction is not counted.
    conn.begin_test_transaction().await.unwrap();
    assert_error!(xact::lock(&mut conn, key_of(7)).await, NotInTransaction);
    let inside = conn.transaction::<_, Error, _>(async |conn| xact::lock(conn, key_of(7)).await);
    inside.await.unwrap();
    assert_eq!(db.locks().await.len(), 1, "kept by the test's transaction");
}

#[tokio::test]
async fn a_transaction_with_an_older_snapshot_is_refused_but_usable() {
    let db = database().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let mut conn = db.connect().await;
        conn.transaction::<_, Error, _>(async |conn| {
            execute(conn, &format!("SET TRANSACTION ISOLATION LEVEL {level}")).await?;
            assert_error!(xact::lock(conn, RoomLock { room: 7 }).await, StaleSnapshot);
            insert(conn, 1, "outer").await.map_err(Error::from)
        })
        .await
        .unwrap();
    }
    assert_eq!(committed(&db, 1).await, 2);

    // A lock that the transaction has held since before its snapshot is not new.
    let mut conn = db.connect().await;
    let request = Request::new(key_of(7)).isolation(Isolation::Serializable);
    let mut held = xact::begin(&mut conn, request).await.unwrap();
    xact::lock(held.conn(), key_of(7)).await.unwrap();
    assert_error!(xact::lock(held.conn(), key_of(8)).await, StaleSnapshot);
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test]
async fn a_request_that_needs_its_own_transaction_is_refused() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.transaction::<_, Error, _>(async |conn| {
        let level = Request::new(7).isolation(Isolation::Serializable);
        for request in [level, Request::new(7).refuse_nested()] {
            assert_error!(xact::lock(conn, request).await, InTransaction);
        }
        let none = Request::all(Vec::<i64>::new());
        assert_error!(xact::lock(conn, none).await, NoKeys);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn behind_a_failed_statement_it_says_so() {
    let db = database().await;
    let mut conn = db.connect().await;
    let result = conn.transaction::<(), Error, _>(async |conn| {
        execute(conn, "SELECT 1 FROM no_such_table")
            .await
            .unwrap_err();
        let error = xact::lock(conn, RoomLock { room: 7 }).await.unwrap_err();
        assert_error!(error, InFailedTransaction);
        Err(error)
    });
    let error = result.await.unwrap_err();
    assert!(error.to_string().contains("`room:<room>`"), "{error}");
    insert(&mut conn, 1, "the connection stays usable")
        .await
        .unwrap();
}

#[tokio::test]
async fn a_dropped_wait_closes_the_connection_and_leaves_no_waiter() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let result = conn.transaction::<(), Error, _>(async |conn| {
        insert(conn, 7, "lost").await?;
        tokio::select! {
            biased;
            _ = xact::lock(conn, key_of(7)) => unreachable!("it is held"),
            () = db.until_waiting(key_of(7)) => {}
        }
        let error = insert(conn, 7, "lost").await.unwrap_err();
        Err(error.into())
    });
    result.await.unwrap_err();
    db.until_no_waiters(key_of(7)).await;
    assert_error!(xact::begin(&mut conn, 8).await, BrokenConnection);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}
