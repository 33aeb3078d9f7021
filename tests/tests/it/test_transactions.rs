//! Locked functions work inside Diesel's test transactions, and nothing is committed.
//!
//! The transaction of `begin_test_transaction` is not counted. `test_transaction` opens an ordinary
//! one, which looks like any other from inside.

use crate::calls::functions;
use advisory_runtime::{Connection, Error, Isolation, Request, Wait, advisory_lock, session, xact};
use advisory_tests::bookings::{bookings, committed, database, execute, insert, key_of};
use advisory_tests::test_transactions::{is_refused, requests};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::Duration;

functions!(asynchronous, insert, AsyncPgConnection, [async], [.await]);

async fn take(
    conn: &mut AsyncPgConnection,
    (request, is_session): (Request, bool),
) -> Result<advisory_runtime::LockGuard<'_, AsyncPgConnection>, Error> {
    if is_session {
        session::acquire(conn, request).await
    } else {
        xact::begin(conn, request).await
    }
}

#[tokio::test]
async fn locked_functions_of_every_kind_work_and_nothing_is_committed() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.begin_test_transaction().await.unwrap();
    for _ in 0..2 {
        asynchronous::lasting(&mut conn, 7).await.unwrap();
    }
    // A session-level lock is released, although the transaction stays open.
    assert_eq!(db.locks().await, []);
    asynchronous::plain(&mut conn, 7).await.unwrap();
    asynchronous::outermost(&mut conn, 7).await.unwrap();
    asynchronous::strict(&mut conn, 7).await.unwrap();
    asynchronous::lasting(&mut conn, 7).await.unwrap();
    assert_eq!(bookings(&mut conn, 7).await.unwrap(), 6);
    assert_eq!(committed(&db, 7).await, 0);
    drop(conn);
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test]
async fn every_request_is_granted_released_and_bounded_as_outside() {
    let db = database().await;
    let mut conn = db.connect().await;
    for (made, asked) in (1..).zip(requests()) {
        conn.begin_test_transaction().await.unwrap();
        execute(&mut conn, "SET LOCAL lock_timeout = '7s'")
            .await
            .unwrap();
        let keys = asked.0.clone();
        let mut held = take(&mut conn, asked.clone()).await.unwrap();
        assert_eq!(
            db.locks().await.len(),
            held.info().keys().len(),
            "{made}: {keys:?}"
        );
        insert(held.conn(), 8, "Ada").await.unwrap();
        held.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(
            advisory_tests::settings::setting(&mut conn, "lock_timeout").await,
            "7s",
            "{keys:?}"
        );
        // The body's own error rolls back a transaction, but not a session-level body.
        let mut held = take(&mut conn, asked.clone()).await.unwrap();
        insert(held.conn(), 8, "Grace").await.unwrap();
        let error = held.finish(Err::<(), _>(DieselError::NotFound.into()));
        let error: Error = error.await.unwrap_err();
        assert!(
            matches!(error, Error::Database(DieselError::NotFound)),
            "{error:?}"
        );
        assert_eq!(
            bookings(&mut conn, 8).await.unwrap(),
            if asked.1 { 2 } else { 1 }
        );
        if asked.1 {
            assert_eq!(db.locks().await, []);
        }
        roll_back(&mut conn).await;
        assert_eq!(db.locks().await, []);
    }
    assert_eq!(committed(&db, 8).await, 0);
}

async fn roll_back(conn: &mut AsyncPgConnection) {
    use diesel_async::{AnsiTransactionManager, TransactionManager};
    AnsiTransactionManager::rollback_transaction(conn)
        .await
        .unwrap();
}

#[tokio::test]
async fn after_a_refusal_the_test_transaction_stays_usable() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let theirs = session::acquire(&mut holder, 8).await.unwrap();
    conn.begin_test_transaction().await.unwrap();
    insert(&mut conn, 8, "before").await.unwrap();
    let mut refused = 0;
    for asked in requests() {
        let bounded = Request::wait(asked.0.clone(), Duration::from_millis(20));
        for request in [asked.0.wait(Wait::Never), bounded] {
            let error = take(&mut conn, (request.clone(), asked.1))
                .await
                .unwrap_err();
            assert!(error.is_busy(), "{request:?}: {error:?}");
            assert_eq!(db.locks().await.len(), 1, "{request:?}");
            insert(&mut conn, 8, "after").await.unwrap();
            refused += 1;
        }
    }
    assert_eq!(bookings(&mut conn, 8).await.unwrap(), 1 + refused);
    theirs.finish(Ok::<_, Error>(())).await.unwrap();
    asynchronous::lasting(&mut conn, 8).await.unwrap();
    asynchronous::strict(&mut conn, 8).await.unwrap();
    drop(conn);
    db.until_quiet().await;
    assert_eq!(committed(&db, 8).await, 0);
}

/// Pools keep a connection that is in a test transaction, so tests give a service a pool of one.
#[tokio::test]
async fn a_pools_one_connection_stays_in_its_test_transaction() {
    async fn call<C: Connection>(conn: &mut C) {
        let conn = conn.pg();
        asynchronous::lasting(conn, 7).await.unwrap();
        asynchronous::outermost(conn, 7).await.unwrap();
        asynchronous::strict(conn, 7).await.unwrap();
    }
    let db = database().await;
    let (bb8, deadpool) = (db.bb8(1).await, db.deadpool(1));
    bb8.get()
        .await
        .unwrap()
        .begin_test_transaction()
        .await
        .unwrap();
    deadpool
        .get()
        .await
        .unwrap()
        .begin_test_transaction()
        .await
        .unwrap();
    for calls in 1..=3 {
        call(&mut bb8.get().await.unwrap()).await;
        let seen = bookings(&mut bb8.get().await.unwrap(), 7).await.unwrap();
        assert_eq!(seen, calls * 3);
    }
    drop(bb8);
    db.until_no_locks().await;
    for calls in 1..=3 {
        call(&mut deadpool.get().await.unwrap()).await;
        let seen = bookings(&mut deadpool.get().await.unwrap(), 7)
            .await
            .unwrap();
        assert_eq!(seen, calls * 3);
    }
    drop(deadpool);
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test]
async fn a_transaction_inside_it_counts() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.begin_test_transaction().await.unwrap();
    conn.transaction::<_, DieselError, _>(async |conn| {
        every_one_but_the_plain_is_refused(conn).await;
        Ok(())
    })
    .await
    .unwrap();
    let mut outer = xact::begin(&mut conn, key_of(1)).await.unwrap();
    every_one_but_the_plain_is_refused(outer.conn()).await;
    outer.finish(Ok::<_, Error>(())).await.unwrap();
    // A session-level body can open one, as outside.
    let mut held = session::acquire(&mut conn, 9).await.unwrap();
    held.conn()
        .transaction::<_, DieselError, _>(async |conn| asynchronous::plain(conn, 2).await)
        .await
        .unwrap();
    asynchronous::strict(held.conn(), 2).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(bookings(&mut conn, 2).await.unwrap(), 2);
}

/// Diesel's `test_transaction` opens an ordinary transaction.
#[tokio::test]
async fn test_transaction_is_a_transaction_like_any_other() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.test_transaction::<_, DieselError, _>(async |conn| {
        every_one_but_the_plain_is_refused(conn).await;
        assert_eq!(bookings(conn, 7).await?, 1);
        Ok(())
    })
    .await;
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

async fn every_one_but_the_plain_is_refused(conn: &mut AsyncPgConnection) {
    is_refused(asynchronous::outermost(conn, 7).await);
    is_refused(asynchronous::strict(conn, 7).await);
    is_refused(asynchronous::lasting(conn, 7).await);
    asynchronous::plain(conn, 7).await.unwrap();
}

/// A statement that fails in a session-level body fails the test's transaction, as without a lock;
/// the lock is released.
#[tokio::test]
async fn after_a_failed_session_level_body_nothing_is_held_or_saved() {
    let db = database().await;
    for is_ok in [true, false] {
        let mut conn = db.connect().await;
        conn.begin_test_transaction().await.unwrap();
        insert(&mut conn, 7, "before").await.unwrap();
        let mut held = session::acquire(&mut conn, 9).await.unwrap();
        let failed = execute(held.conn(), "SELECT 1/0").await.unwrap_err();
        let result = if is_ok {
            Ok(())
        } else {
            Err(Error::Database(failed))
        };
        let error = held.finish(result).await.unwrap_err();
        assert!(
            is_ok || matches!(error, Error::Database(DieselError::DatabaseError(..))),
            "{error:?}"
        );
        insert(&mut conn, 7, "after").await.unwrap_err();
        db.until_no_locks().await;
        assert_eq!(committed(&db, 7).await, 0);
    }
    db.until_quiet().await;
    // A transaction-level body is rolled back to its savepoint, and the test continues.
    let mut conn = db.connect().await;
    conn.begin_test_transaction().await.unwrap();
    let mut held = xact::begin(
        &mut conn,
        Request::new(9).isolation(Isolation::Serializable),
    )
    .await
    .unwrap();
    execute(held.conn(), "SELECT 1/0").await.unwrap_err();
    let error = held.finish(Ok::<_, Error>(())).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack { .. }), "{error:?}");
    insert(&mut conn, 7, "after").await.unwrap();
}

/// A dropped call, in a body or before it.
#[tokio::test]
async fn a_dropped_call_commits_nothing_of_the_test() {
    let db = database().await;
    for is_session in [true, false] {
        let mut conn = db.connect().await;
        conn.begin_test_transaction().await.unwrap();
        insert(&mut conn, 7, "before").await.unwrap();
        let asked = (
            Request::new(9).isolation(if is_session {
                Isolation::ReadCommitted
            } else {
                Isolation::Serializable
            }),
            is_session,
        );
        let mut held = take(&mut conn, asked).await.unwrap();
        insert(held.conn(), 7, "half done").await.unwrap();
        drop(held);
        db.until_no_locks().await;
        drop(insert(&mut conn, 7, "after").await);
        drop(conn);
        db.until_quiet().await;
        assert_eq!(committed(&db, 7).await, 0);
    }
}
