//! Locked functions work inside Diesel's test transactions, and nothing is committed.
//!
//! The transaction of `begin_test_transaction` is not counted. `test_transaction` opens an ordinary
//! one, which looks like any other from inside.

use super::super::{
    Conn, LockGuard, acquire, begin, begin_test_transaction, bookings, connect, end, execute,
    functions, in_transaction, insert, rollback_transaction, run, setting, test_transaction,
};
use advisory_runtime::{Error, Isolation, Request, Wait};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::{assert_error, assert_matches};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use std::time::Duration;

/// Every kind of request; `true` if it is for a session-level lock.
fn requests() -> Vec<(Request, bool)> {
    let mut requests = Vec::new();
    for wait in [
        Wait::Session,
        Wait::Never,
        Wait::For(Duration::from_millis(40)),
        Wait::Forever,
    ] {
        for keys in [vec![8], vec![6, 8, 9]] {
            for request in [
                Request::all(keys.clone()),
                Request::all(keys.clone()).shared(),
            ] {
                let request = request.wait(wait);
                requests.push((request.clone(), true));
                requests.push((request.clone(), false));
                requests.push((request.clone().refuse_nested(), false));
                requests.push((request.clone().isolation(Isolation::RepeatableRead), false));
                requests.push((request.isolation(Isolation::Serializable), false));
            }
        }
    }
    requests
}

/// The call must have been refused because a transaction is open.
fn is_refused(result: QueryResult<usize>) {
    assert_matches!(
        Error::from(result.unwrap_err()),
        Error::InTransaction { .. }
    );
}

async fn take(
    conn: &mut Conn,
    (request, is_session): (Request, bool),
) -> Result<LockGuard<'_>, Error> {
    if is_session {
        acquire(conn, request).await
    } else {
        begin(conn, request).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_functions_of_every_kind_work_and_nothing_is_committed() {
    let db = database().await;
    let mut conn = connect(&db).await;
    begin_test_transaction(&mut conn).await.unwrap();
    for _ in 0..2 {
        functions::lasting(&mut conn, 7).await.unwrap();
    }
    // A session-level lock is released, although the transaction stays open.
    assert_eq!(db.locks().await, []);
    functions::plain(&mut conn, 7).await.unwrap();
    functions::outermost(&mut conn, 7).await.unwrap();
    functions::strict(&mut conn, 7).await.unwrap();
    functions::lasting(&mut conn, 7).await.unwrap();
    assert_eq!(bookings(&mut conn, 7).await.unwrap(), 6);
    assert_eq!(committed(&db, 7).await, 0);
    drop(conn);
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_is_granted_released_and_bounded_as_outside() {
    let db = database().await;
    let mut conn = connect(&db).await;
    for (made, asked) in (1..).zip(requests()) {
        begin_test_transaction(&mut conn).await.unwrap();
        run(&mut conn, "SET LOCAL lock_timeout = '7s'").await;
        let keys = asked.0.clone();
        let mut held = take(&mut conn, asked.clone()).await.unwrap();
        assert_eq!(
            db.locks().await.len(),
            held.info().keys().len(),
            "{made}: {keys:?}"
        );
        insert(held.conn(), 8, "Ada").await.unwrap();
        end(held, Ok::<_, Error>(())).await.unwrap();
        assert_eq!(setting(&mut conn, "lock_timeout").await, "7s", "{keys:?}");
        // The body's own error rolls back a transaction, but not a session-level body.
        let mut held = take(&mut conn, asked.clone()).await.unwrap();
        insert(held.conn(), 8, "Grace").await.unwrap();
        let error = end(held, Err::<(), Error>(DieselError::NotFound.into())).await;
        assert_matches!(error, Err(Error::Database(DieselError::NotFound)));
        assert_eq!(
            bookings(&mut conn, 8).await.unwrap(),
            if asked.1 { 2 } else { 1 }
        );
        if asked.1 {
            assert_eq!(db.locks().await, []);
        }
        rollback_transaction(&mut conn).await.unwrap();
        assert_eq!(db.locks().await, []);
    }
    assert_eq!(committed(&db, 8).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refusal_the_test_transaction_stays_usable() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    let theirs = acquire(&mut holder, 8).await.unwrap();
    begin_test_transaction(&mut conn).await.unwrap();
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
    end(theirs, Ok::<_, Error>(())).await.unwrap();
    functions::lasting(&mut conn, 8).await.unwrap();
    functions::strict(&mut conn, 8).await.unwrap();
    drop(conn);
    db.until_quiet().await;
    assert_eq!(committed(&db, 8).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_inside_it_counts() {
    let db = database().await;
    let mut conn = connect(&db).await;
    begin_test_transaction(&mut conn).await.unwrap();
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        every_one_but_the_plain_is_refused(conn).await;
        Ok(())
    })
    .await
    .unwrap();
    let mut outer = begin(&mut conn, key_of(1)).await.unwrap();
    every_one_but_the_plain_is_refused(outer.conn()).await;
    end(outer, Ok::<_, Error>(())).await.unwrap();
    // A session-level body can open one, as outside.
    let mut held = acquire(&mut conn, 9).await.unwrap();
    let plain = in_transaction(held.conn(), async |conn| functions::plain(conn, 2).await);
    plain.await.unwrap();
    functions::strict(held.conn(), 2).await.unwrap();
    end(held, Ok::<_, Error>(())).await.unwrap();
    assert_eq!(bookings(&mut conn, 2).await.unwrap(), 2);
}

/// Diesel's `test_transaction` opens an ordinary transaction.
#[tokio::test(flavor = "multi_thread")]
async fn test_transaction_is_a_transaction_like_any_other() {
    let db = database().await;
    let mut conn = connect(&db).await;
    test_transaction(&mut conn, |conn| {
        Box::pin(async move {
            every_one_but_the_plain_is_refused(conn).await;
            assert_eq!(bookings(conn, 7).await?, 1);
            Ok(())
        })
    })
    .await;
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

async fn every_one_but_the_plain_is_refused(conn: &mut Conn) {
    is_refused(functions::outermost(conn, 7).await);
    is_refused(functions::strict(conn, 7).await);
    is_refused(functions::lasting(conn, 7).await);
    functions::plain(conn, 7).await.unwrap();
}

/// A statement that fails in a session-level body fails the test's transaction, as without a lock;
/// the lock is released.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_session_level_body_nothing_is_held_or_saved() {
    let db = database().await;
    for is_ok in [true, false] {
        let mut conn = connect(&db).await;
        begin_test_transaction(&mut conn).await.unwrap();
        insert(&mut conn, 7, "before").await.unwrap();
        let mut held = acquire(&mut conn, 9).await.unwrap();
        let failed = execute(held.conn(), "SELECT 1/0").await.unwrap_err();
        let result = if is_ok {
            Ok(())
        } else {
            Err(Error::Database(failed))
        };
        let error = end(held, result).await.unwrap_err();
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
    let mut conn = connect(&db).await;
    begin_test_transaction(&mut conn).await.unwrap();
    let mut held = begin(
        &mut conn,
        Request::new(9).isolation(Isolation::Serializable),
    )
    .await
    .unwrap();
    execute(held.conn(), "SELECT 1/0").await.unwrap_err();
    assert_error!(end(held, Ok::<_, Error>(())).await, RolledBack);
    insert(&mut conn, 7, "after").await.unwrap();
}

/// A dropped call, in a body or before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_commits_nothing_of_the_test() {
    let db = database().await;
    for is_session in [true, false] {
        let mut conn = connect(&db).await;
        begin_test_transaction(&mut conn).await.unwrap();
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
