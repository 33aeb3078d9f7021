//! Locked calls inside an open transaction: `Ok` keeps the lock to the end of the outer
//! transaction, `Err` releases it with the savepoint.

use super::super::{
    Conn, batch, begin, book, connect, end, execute, get, in_transaction, insert, locked, pid_of,
    pool, rollback_transaction,
};
use advisory_runtime::{Error, Isolation, Request, Wait};
use advisory_tests::bookings::{committed, database, diesel_outcome, key_of};
use advisory_tests::{Database, assert_error, assert_matches, debug_checks_are_on};
use diesel::QueryResult;
use diesel::result::Error as DieselError;

async fn fail(conn: &mut Conn, room: i64) -> QueryResult<()> {
    locked(conn, room, async |conn| {
        insert(conn, room, "nobody").await?;
        Err(DieselError::NotFound)
    })
    .await
}

/// Runs the statements under a lock, and ignores their result.
async fn run(conn: &mut Conn, sql: &str) -> QueryResult<()> {
    locked(conn, 99, async |conn| {
        drop(batch(conn, sql).await);
        Ok(())
    })
    .await
}

async fn rows(db: &Database, rooms: [i64; 3]) -> [i64; 3] {
    let [one, two, three] = rooms;
    [
        committed(db, one).await,
        committed(db, two).await,
        committed(db, three).await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn ok_keeps_the_lock_to_the_end_of_the_outer_transaction() {
    let db = database().await;
    let mut conn = connect(&db).await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        assert!(book(conn, 7, "Ada").await?);
        assert_eq!(db.locks().await.len(), 1, "still held");
        assert_eq!(committed(&db, 7).await, 0, "not committed yet");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(committed(&db, 7).await, 1);
    assert_eq!(db.locks().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_releases_the_lock_and_keeps_the_outer_transaction() {
    let db = database().await;
    let mut conn = connect(&db).await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        insert(conn, 1, "outer").await?;
        let error = fail(conn, 7).await.unwrap_err();
        assert_matches!(error, DieselError::NotFound);
        assert_eq!(db.locks().await, [], "freed with the savepoint");
        insert(conn, 2, "outer").await
    })
    .await
    .unwrap();
    assert_eq!(rows(&db, [1, 7, 2]).await, [1, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_lock_leaves_the_outer_transaction_alive() {
    let db = database().await;
    let (mut holder, mut conn) = (connect(&db).await, connect(&db).await);
    let held = begin(&mut holder, key_of(7)).await.unwrap();
    execute(&mut conn, "SET lock_timeout = '50ms'")
        .await
        .unwrap();
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        let never = Request::new(key_of(7)).wait(Wait::Never);
        let refused = begin(conn, never).await.map(drop).unwrap_err();
        let timed_out = Error::from(book(conn, 7, "Ada").await.unwrap_err());
        for error in [refused, timed_out] {
            assert!(error.is_busy(), "{error:?}");
        }
        assert!(book(conn, 8, "Ada").await?);
        insert(conn, 1, "outer").await
    })
    .await
    .unwrap();
    end(held, Ok::<_, Error>(())).await.unwrap();
    assert_eq!(rows(&db, [1, 7, 8]).await, [1, 0, 1]);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_calls_nest_in_locked_calls() {
    async fn outer(conn: &mut Conn, db: &Database) -> QueryResult<bool> {
        locked(conn, 1, async |conn| {
            fail(conn, 6).await.unwrap_err();
            let booked = book(conn, 7, "Ada").await?;
            assert_eq!(db.locks().await.len(), 2);
            Ok(booked)
        })
        .await
    }
    let db = database().await;
    let mut conn = connect(&db).await;
    assert!(outer(&mut conn, &db).await.unwrap());
    assert!(!outer(&mut conn, &db).await.unwrap());
    assert_eq!([committed(&db, 6).await, committed(&db, 7).await], [0, 1]);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_to_be_outside_is_refused_inside() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let requests = [
        Request::new(7).refuse_nested(),
        Request::new(7).isolation(Isolation::RepeatableRead),
        Request::new(7).isolation(Isolation::Serializable),
    ];
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        for request in &requests {
            assert_error!(begin(conn, request.clone()).await, InTransaction);
        }
        insert(conn, 1, "outer").await
    })
    .await
    .unwrap();
    assert_eq!(committed(&db, 1).await, 1);
    for request in requests {
        let mut held = begin(&mut conn, request).await.unwrap();
        insert(held.conn(), 8, "outside").await.unwrap();
        end(held, Ok::<_, Error>(())).await.unwrap();
    }
    assert_eq!(committed(&db, 8).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_repeatable_read_it_is_refused() {
    let db = database().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let mut conn = connect(&db).await;
        in_transaction::<_, DieselError>(&mut conn, async |conn| {
            execute(conn, &format!("SET TRANSACTION ISOLATION LEVEL {level}")).await?;
            assert_error!(book(conn, 7, "Ada").await, StaleSnapshot);
            insert(conn, 1, "outer").await
        })
        .await
        .unwrap();
    }
    assert_eq!([committed(&db, 7).await, committed(&db, 1).await], [0, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ignored_nested_error_is_found_and_keeps_the_outer_one() {
    let db = database().await;
    let mut conn = connect(&db).await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        let statements = "INSERT INTO booking VALUES (7, 'nobody'); SELECT 1 FROM no_such_table";
        assert_error!(run(conn, statements).await, RolledBack);
        assert_eq!(db.locks().await, []);
        insert(conn, 1, "outer").await
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 1).await], [0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_commit_by_hand_poisons_the_outer_transaction() {
    let db = database().await;
    for is_ok in [true, false] {
        let mut conn = connect(&db).await;
        let result = in_transaction::<(), DieselError>(&mut conn, async |conn| {
            let error = locked(conn, 99, async |conn| {
                execute(conn, "COMMIT").await?;
                diesel_outcome(is_ok)
            });
            let error = Error::from(error.await.unwrap_err());
            let is_found = matches!(error, Error::TransactionEnded { .. });
            assert_eq!(is_found, is_ok, "{error:?}");
            insert(conn, 1, "on its own").await.unwrap_err();
            Ok(())
        });
        result.await.unwrap_err();
    }
    assert_eq!(committed(&db, 1).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_lost_in_a_nested_body_poisons_the_outer_one() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let result = in_transaction::<(), DieselError>(&mut conn, async |conn| {
        let pid = pid_of(conn).await;
        let lost = locked(conn, 7, async |_| {
            db.terminate(pid).await;
            Ok(())
        });
        let error: DieselError = lost.await.unwrap_err();
        assert_matches!(error, DieselError::DatabaseError(..));
        Ok(())
    });
    result.await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_outer_transaction_is_left_for_diesel_to_roll_back() {
    let db = database().await;
    let pool = pool(&db);
    let mut conn = get(&pool).await;
    let pid = pid_of(&mut conn).await;
    let result = in_transaction::<(), DieselError>(&mut conn, async |conn| {
        book(conn, 1, "Ada").await?;
        drop(execute(conn, "SELECT 1 FROM no_such_table").await);
        book(conn, 2, "Ada").await.unwrap_err();
        Err(DieselError::NotFound)
    });
    let result = result.await;
    assert_matches!(result, Err(DieselError::NotFound));
    drop(conn);
    // The connection is idle in its pool, so only the rollback can have released the lock.
    db.until_quiet().await;
    let mut conn = get(&pool).await;
    assert_eq!(pid_of(&mut conn).await, pid);
    assert!(book(&mut conn, 1, "Grace").await.unwrap());
}

/// The savepoint of a nested call is not one of Diesel's, so Diesel cannot end it.
#[tokio::test(flavor = "multi_thread")]
async fn a_nested_body_cannot_end_its_savepoint_through_diesel() {
    let db = database().await;
    let mut conn = connect(&db).await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        let rolled_back = locked(conn, 7, async |conn| {
            insert(conn, 1, "undone").await?;
            rollback_transaction(conn).await
        });
        let error = rolled_back.await.unwrap_err();
        assert_matches!(error, DieselError::DatabaseError(..));
        assert_eq!(db.locks().await, []);
        insert(conn, 2, "outer").await
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 1).await, committed(&db, 2).await], [0, 1]);
}

/// A savepoint of the same name, without the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_nested_body_that_lost_its_lock_half_way_is_found_out() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let mut conn = connect(&db).await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        let begun_again = locked(conn, 7, async |conn| {
            insert(conn, 1, "undone").await?;
            execute(conn, "ROLLBACK TO SAVEPOINT advisory_savepoint_1").await?;
            insert(conn, 3, "without the lock").await
        });
        assert_error!(begun_again.await, TransactionEnded);
        insert(conn, 2, "outer").await
    })
    .await
    .unwrap();
    assert_eq!(rows(&db, [1, 2, 3]).await, [0, 1, 0]);
}
