//! A lock and a try in the middle of a transaction: what they take is held to the end, and a
//! refusal changes nothing.

use super::super::{
    Conn, begin, begin_test_transaction, bookings, connect, end, execute, in_transaction, insert,
    lock, try_lock,
};
use crate::calls::RoomLock;
use advisory_runtime::{Error, Isolation, Request, Wait};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::held_keys::keys;
use advisory_tests::{LockedKey, assert_error};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(50);

/// Takes the lock in one of the two ways.
async fn ask(conn: &mut Conn, is_try: bool, request: impl Into<Request>) -> Result<bool, Error> {
    if is_try {
        try_lock(conn, request).await
    } else {
        lock(conn, request).await.map(|_| true)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_held_to_the_end_of_the_transaction() {
    let db = database().await;
    let mut conn = connect(&db).await;
    in_transaction::<_, Error>(&mut conn, async |conn| {
        let room = bookings(conn, 7).await? + 7;
        let acquired = lock(conn, RoomLock { room }).await?;
        assert_eq!(acquired.key(), key_of(7).into());
        insert(conn, 7, "Ada").await?;
        assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(key_of(7))]);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!((committed(&db, 7).await, db.locks().await), (1, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_takes_a_free_lock_to_the_end_of_the_transaction() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    let held = begin(&mut holder, key_of(7)).await.unwrap();
    in_transaction::<_, Error>(&mut conn, async |conn| {
        insert(conn, 1, "before").await?;
        assert!(!try_lock(conn, RoomLock { room: 7 }).await?);
        assert!(try_lock(conn, RoomLock { room: 8 }).await?);
        assert!(try_lock(conn, (3, -4)).await?);
        assert!(try_lock(conn, Request::new(9).shared()).await?);
        // It never waits, whatever the request says.
        for request in [
            Request::new(key_of(7)).wait(Wait::Forever),
            Request::new(key_of(7)).poll(SHORT),
            Request::new(key_of(7)).shared(),
        ] {
            assert!(!try_lock(conn, request).await?);
        }
        let mut locks = keys(&db.locks().await);
        locks.sort();
        let mut expected = [
            LockedKey::Bigint(9),
            LockedKey::Bigint(key_of(7)),
            LockedKey::Bigint(key_of(8)),
            LockedKey::Pair(3, -4),
        ];
        expected.sort();
        assert_eq!(locks, expected);
        insert(conn, 2, "behind").await.map_err(Error::from)
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 1).await, committed(&db, 2).await], [1, 1]);
    assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(key_of(7))]);
    end(held, Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_for_several_keys_takes_all_or_none() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    let held = begin(&mut holder, 7).await.unwrap();
    in_transaction::<_, Error>(&mut conn, async |conn| {
        insert(conn, 1, "before").await?;
        assert!(!try_lock(conn, Request::all([6, 7])).await?);
        assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(7)]);
        assert!(try_lock(conn, Request::all([5, 6])).await?);
        assert_eq!(db.locks().await.len(), 3);
        for _ in 0..2 {
            assert!(try_lock(conn, Request::new(40).permits(2)).await?);
        }
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(committed(&db, 1).await, 1);
    end(held, Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_not_granted_leaves_the_transaction_as_it_was() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    let held = begin(&mut holder, key_of(7)).await.unwrap();
    in_transaction::<_, Error>(&mut conn, async |conn| {
        insert(conn, 1, "before").await?;
        let two = || Request::all([key_of(6), key_of(7)]);
        let missed = lock(conn, two().wait(Wait::Never)).await.unwrap_err();
        assert_error!(missed, NotAvailable);
        assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(key_of(7))]);
        assert_error!(lock(conn, two().wait(SHORT)).await, TimedOut);
        assert_eq!(keys(&db.locks().await), [LockedKey::Bigint(key_of(7))]);
        execute(conn, "SET LOCAL lock_timeout = '50ms'").await?;
        let late = lock(conn, RoomLock { room: 7 }).await.unwrap_err();
        assert_error!(late, TimedOut { lock, .. } if lock == "room:<room>");
        lock(conn, Request::new(key_of(8)).wait(Wait::Never)).await?;
        assert_eq!(db.locks().await.len(), 2);
        insert(conn, 2, "behind").await.map_err(Error::from)
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 1).await, committed(&db, 2).await], [1, 1]);
    end(held, Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_of_a_transaction_it_is_refused() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let error = lock(&mut conn, key_of(7)).await.unwrap_err();
    assert_error!(error, NotInTransaction);
    assert_eq!(
        error.to_string(),
        format!(
            "advisory lock `{}` was requested outside of a transaction, where it would be released at once: call `lock` inside \
             `transaction`, or open one that holds it with `begin`",
            key_of(7)
        )
    );
    let refused = ask(&mut conn, true, 7).await;
    assert_error!(refused, NotInTransaction);
    // A test transaction is not counted.
    begin_test_transaction(&mut conn).await.unwrap();
    let refused = ask(&mut conn, false, key_of(7)).await;
    assert_error!(refused, NotInTransaction);
    in_transaction::<_, Error>(&mut conn, async |conn| lock(conn, key_of(7)).await)
        .await
        .unwrap();
    assert_eq!(db.locks().await.len(), 1, "kept by the test's transaction");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_with_an_older_snapshot_is_refused_but_usable() {
    let db = database().await;
    let mut conn = connect(&db).await;
    for is_try in [false, true] {
        for level in ["REPEATABLE READ", "SERIALIZABLE", "READ UNCOMMITTED"] {
            in_transaction::<_, Error>(&mut conn, async |conn| {
                execute(conn, &format!("SET TRANSACTION ISOLATION LEVEL {level}")).await?;
                match ask(conn, is_try, RoomLock { room: 7 }).await {
                    Ok(is_taken) => assert!(is_taken && level == "READ UNCOMMITTED"),
                    Err(error) => {
                        assert_error!(error, StaleSnapshot);
                        assert_eq!(db.locks().await, []);
                    }
                }
                insert(conn, 1, "goes on").await.map_err(Error::from)
            })
            .await
            .unwrap();
        }
        // A lock that the transaction has held since before its snapshot is not new.
        let request = Request::new(key_of(7)).isolation(Isolation::Serializable);
        let mut held = begin(&mut conn, request).await.unwrap();
        assert!(ask(held.conn(), is_try, key_of(7)).await.unwrap());
        let refused = ask(held.conn(), is_try, key_of(8)).await;
        assert_error!(refused, StaleSnapshot);
        end(held, Ok::<_, Error>(())).await.unwrap();
    }
    assert_eq!(committed(&db, 1).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_needs_its_own_transaction_is_refused() {
    let db = database().await;
    let mut conn = connect(&db).await;
    in_transaction::<_, Error>(&mut conn, async |conn| {
        for is_try in [false, true] {
            let level = Request::new(7).isolation(Isolation::Serializable);
            for request in [level, Request::new(7).refuse_nested()] {
                assert_error!(ask(conn, is_try, request).await, InTransaction);
            }
            let none = Request::all(Vec::<i64>::new());
            assert_error!(ask(conn, is_try, none).await, NoKeys);
        }
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_failed_statement_it_says_so() {
    let db = database().await;
    let mut conn = connect(&db).await;
    // The second time the queries are prepared already.
    for is_try in [false, true, false, true] {
        let result = in_transaction::<(), Error>(&mut conn, async |conn| {
            let failed = execute(conn, "SELECT 1 FROM no_such_table").await;
            failed.unwrap_err();
            let refused = ask(conn, is_try, RoomLock { room: 7 }).await;
            let error = refused.unwrap_err();
            assert_error!(error, InFailedTransaction);
            Err(error)
        });
        let error = result.await.unwrap_err();
        assert!(error.to_string().contains("`room:<room>`"), "{error}");
        in_transaction::<_, Error>(&mut conn, async |conn| {
            insert(conn, 1, "the connection stays usable").await?;
            ask(conn, is_try, 8).await
        })
        .await
        .unwrap();
    }
    assert_eq!((committed(&db, 1).await, db.locks().await), (4, vec![]));
}
