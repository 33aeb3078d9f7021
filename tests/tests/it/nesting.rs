//! Locked calls inside an open transaction: `Ok` keeps the lock to the end of the outer transaction, `Err` releases it with the
//! savepoint.

use crate::bookings::{book, committed, database, execute, in_transaction, insert, key_of};
use advisory_runtime::{Error, advisory_lock, xact};
use advisory_tests::{debug_checks_are_on, pid_of};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncPgConnection, TransactionManager,
};

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn fail(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    insert(conn, room, "nobody").await?;
    Err(DieselError::NotFound)
}

#[tokio::test]
async fn ok_keeps_the_lock_to_the_end_of_the_outer_transaction() {
    let db = database().await;
    let mut conn = db.connect().await;
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

#[tokio::test]
async fn an_error_releases_the_lock_and_keeps_the_outer_transaction() {
    let db = database().await;
    let mut conn = db.connect().await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        insert(conn, 1, "outer").await?;
        fail(conn, 7).await.unwrap_err();
        assert_eq!(db.locks().await, [], "freed with the savepoint");
        insert(conn, 2, "outer").await
    })
    .await
    .unwrap();
    assert_eq!(
        [
            committed(&db, 1).await,
            committed(&db, 7).await,
            committed(&db, 2).await
        ],
        [1, 0, 1]
    );
}

#[tokio::test]
async fn a_refused_lock_leaves_the_outer_transaction_alive() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    execute(&mut conn, "SET lock_timeout = '50ms'")
        .await
        .unwrap();
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        let error = book(conn, 7, "Ada").await.unwrap_err();
        assert!(
            Error::find(&error).is_some_and(|error| error.is_busy()),
            "{error:?}"
        );
        insert(conn, 1, "outer").await
    })
    .await
    .unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(committed(&db, 1).await, 1);
    db.until_quiet().await;
}

#[tokio::test]
async fn locked_calls_nest_in_locked_calls() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn outer(conn: &mut AsyncPgConnection) -> QueryResult<bool> {
        fail(conn, 6).await.unwrap_err();
        book(conn, 7, "Ada").await
    }
    let db = database().await;
    let mut conn = db.connect().await;
    assert!(outer(&mut conn).await.unwrap());
    assert!(!outer(&mut conn).await.unwrap());
    assert_eq!([committed(&db, 6).await, committed(&db, 7).await], [0, 1]);
    db.until_quiet().await;
}

#[tokio::test]
async fn inside_repeatable_read_it_is_refused() {
    let db = database().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let mut conn = db.connect().await;
        in_transaction::<_, DieselError>(&mut conn, async |conn| {
            execute(conn, &format!("SET TRANSACTION ISOLATION LEVEL {level}")).await?;
            let error = book(conn, 7, "Ada").await.unwrap_err();
            assert!(
                matches!(
                    Error::find(&error).as_deref(),
                    Some(Error::StaleSnapshot { .. })
                ),
                "{error:?}"
            );
            insert(conn, 1, "outer").await
        })
        .await
        .unwrap();
    }
    assert_eq!([committed(&db, 7).await, committed(&db, 1).await], [0, 2]);
}

#[tokio::test]
async fn a_serializable_role_still_reads_the_holders_writes() {
    let db = database().await;
    let (mut first, mut second) = (db.connect().await, db.connect().await);
    execute(
        &mut second,
        "SET default_transaction_isolation = 'serializable'",
    )
    .await
    .unwrap();
    let mut held = xact::begin(&mut first, key_of(7)).await.unwrap();
    insert(held.conn(), 7, "Ada").await.unwrap();
    let waiting = tokio::spawn(async move { book(&mut second, 7, "Grace").await });
    db.until_waiting(key_of(7)).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert!(!waiting.await.unwrap().unwrap());
}

#[tokio::test]
async fn an_ignored_nested_error_is_found_and_keeps_the_outer_one() {
    #[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
    async fn swallow(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
        insert(conn, room, "nobody").await?;
        execute(conn, "SELECT 1 FROM no_such_table")
            .await
            .unwrap_err();
        Ok(())
    }
    let db = database().await;
    let mut conn = db.connect().await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        let error = swallow(conn, 7).await.unwrap_err();
        assert!(
            matches!(
                Error::find(&error).as_deref(),
                Some(Error::RolledBack { .. })
            ),
            "{error:?}"
        );
        insert(conn, 1, "outer").await
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 1).await], [0, 1]);
}

#[tokio::test]
async fn a_nested_call_that_commits_by_hand_is_found_out() {
    #[advisory_lock(key = "inner", name = "inner", scope = "xact")]
    async fn commit(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        execute(conn, "COMMIT").await.map(drop)
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let result = in_transaction::<_, DieselError>(&mut conn, async |conn| commit(conn).await).await;
    let error = result.unwrap_err();
    assert!(
        matches!(
            Error::find(&error).as_deref(),
            Some(Error::TransactionEnded { .. })
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn inside_diesels_test_transaction_nothing_is_committed() {
    let db = database().await;
    let mut conn = db.connect().await;
    conn.begin_test_transaction().await.unwrap();
    assert!(book(&mut conn, 7, "Ada").await.unwrap());
    assert!(!book(&mut conn, 7, "Grace").await.unwrap());
    drop(conn);
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test]
async fn a_connection_lost_in_a_nested_body_poisons_the_outer_one() {
    #[advisory_lock(key = "inner", name = "inner", scope = "xact")]
    async fn lost(conn: &mut AsyncPgConnection, db: &advisory_tests::Database) -> QueryResult<()> {
        let pid = pid_of(conn).await;
        db.terminate(pid).await;
        Ok(())
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let result = in_transaction::<(), DieselError>(&mut conn, async |conn| {
        let error = lost(conn, &db).await.unwrap_err();
        assert!(matches!(error, DieselError::DatabaseError(..)), "{error:?}");
        Ok(())
    });
    result.await.unwrap_err();
}

#[tokio::test]
async fn a_nested_commit_by_hand_that_fails_poisons_the_outer_one() {
    #[advisory_lock(key = "inner", name = "inner", scope = "xact")]
    async fn commit(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        execute(conn, "COMMIT").await?;
        Err(DieselError::NotFound)
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let result = in_transaction::<(), DieselError>(&mut conn, async |conn| {
        commit(conn).await.unwrap_err();
        insert(conn, 1, "on its own").await.unwrap_err();
        Ok(())
    });
    result.await.unwrap_err();
    assert_eq!(committed(&db, 1).await, 0);
}

#[tokio::test]
async fn a_call_inside_a_transaction_ended_by_hand_dooms_what_is_left() {
    let db = database().await;
    let mut conn = db.connect().await;
    let result = in_transaction::<(), DieselError>(&mut conn, async |conn| {
        execute(conn, "COMMIT").await?;
        book(conn, 7, "Ada").await.unwrap_err();
        insert(conn, 1, "on its own").await.unwrap_err();
        Ok(())
    });
    result.await.unwrap_err();
    assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [0, 0]);
}

#[tokio::test]
async fn a_failed_outer_transaction_is_left_for_diesel_to_roll_back() {
    let db = database().await;
    let pool = db.deadpool(1);
    {
        let mut conn = pool.get().await.unwrap();
        let result = in_transaction::<(), DieselError>(&mut conn, async |conn| {
            book(conn, 1, "Ada").await?;
            drop(execute(conn, "SELECT 1 FROM no_such_table").await);
            book(conn, 2, "Ada").await.unwrap_err();
            Err(DieselError::NotFound)
        });
        assert!(matches!(result.await, Err(DieselError::NotFound)));
    }
    // The connection is idle in its pool, so only the rollback can have released the lock.
    db.until_quiet().await;
    assert!(
        book(&mut pool.get().await.unwrap(), 1, "Grace")
            .await
            .unwrap()
    );
}

/// The savepoint of a nested call is not one of Diesel's, so Diesel cannot end it.
#[tokio::test]
async fn a_nested_body_cannot_end_its_savepoint_through_diesel() {
    #[advisory_lock(key = "inner", name = "inner", scope = "xact")]
    async fn roll_back(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        insert(conn, 1, "undone").await?;
        AnsiTransactionManager::rollback_transaction(conn).await
    }
    let db = database().await;
    let mut conn = db.connect().await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        let error = roll_back(conn).await.unwrap_err();
        assert!(matches!(error, DieselError::DatabaseError(..)), "{error:?}");
        assert_eq!(db.locks().await, []);
        insert(conn, 2, "outer").await
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 1).await, committed(&db, 2).await], [0, 1]);
}

/// A savepoint of the same name, without the lock.
#[tokio::test]
async fn a_nested_body_that_lost_its_lock_half_way_is_found_out() {
    #[advisory_lock(key = "inner", name = "inner", scope = "xact")]
    async fn begin_again(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        insert(conn, 1, "undone").await?;
        execute(conn, "ROLLBACK TO SAVEPOINT advisory_savepoint_1").await?;
        insert(conn, 3, "without the lock").await.map(drop)
    }
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let mut conn = db.connect().await;
    in_transaction::<_, DieselError>(&mut conn, async |conn| {
        let error = begin_again(conn).await.unwrap_err();
        let found = Error::find(&error);
        assert!(
            matches!(found.as_deref(), Some(Error::TransactionEnded { .. })),
            "{error:?}"
        );
        insert(conn, 2, "outer").await
    })
    .await
    .unwrap();
    let rows = [
        committed(&db, 1).await,
        committed(&db, 2).await,
        committed(&db, 3).await,
    ];
    assert_eq!(rows, [0, 1, 0]);
}

#[tokio::test]
async fn a_transaction_dropped_in_the_body_is_rolled_back_first() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn give_up(conn: &mut AsyncPgConnection, is_ok: bool) -> QueryResult<()> {
        let (reach, reached) = tokio::sync::oneshot::channel();
        let transaction = in_transaction::<(), DieselError>(conn, async |conn| {
            insert(conn, 7, "half done").await?;
            reach.send(()).unwrap();
            std::future::pending().await
        });
        tokio::select! {
            biased;
            _ = transaction => {}
            _ = reached => {}
        }
        if is_ok {
            Ok(())
        } else {
            Err(DieselError::NotFound)
        }
    }
    let db = database().await;
    for is_ok in [true, false] {
        let mut conn = db.connect().await;
        let error = give_up(&mut conn, is_ok).await.unwrap_err();
        assert_eq!(db.locks().await, [], "gone when the call has returned");
        let rolled_back = matches!(
            Error::find(&error).as_deref(),
            Some(Error::RolledBack { .. })
        );
        assert_eq!(rolled_back, is_ok, "{error:?}");
    }
    assert_eq!(committed(&db, 7).await, 0);
}
