//! The body of a session-level lock runs without a transaction: it may run several, and one that it leaves open is rolled back.

use crate::bookings::{committed, database, execute, insert};
use crate::session::held;
use advisory_runtime::{Error, Request, session, xact};
use advisory_tests::{LockedKey, debug_checks_are_on};
use diesel::result::Error as DieselError;
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, SimpleAsyncConnection, TransactionManager,
};

#[tokio::test]
async fn a_transaction_left_open_is_rolled_back_before_the_release() {
    let db = database().await;
    insert(&mut db.connect().await, 1, "Ada").await.unwrap();
    for (failure, is_foreign) in [("", true), ("; SELECT 1/0", false)] {
        // A transaction that stays open is found in debug builds only.
        if is_foreign && !debug_checks_are_on() {
            continue;
        }
        for is_ok in [true, false] {
            let (mut conn, mut waiter) = (db.connect().await, db.connect().await);
            let mut mine = session::acquire(&mut conn, 7).await.unwrap();
            let waiting = tokio::spawn(async move {
                let mut mine = session::acquire(&mut waiter, 7).await?;
                // Fails if an earlier transaction still has the row.
                let row = "SELECT FROM booking WHERE room = 1 FOR UPDATE NOWAIT";
                let free = execute(mine.conn(), row).await.map(drop);
                mine.finish(free.map_err(Error::Database)).await
            });
            db.until_waiting(7).await;
            let open = format!("BEGIN; UPDATE booking SET guest = 'half done'{failure}");
            drop(mine.conn().batch_execute(&open).await);
            let result = if is_ok {
                Ok(())
            } else {
                Err(Error::Database(DieselError::NotFound))
            };
            let error = mine.finish(result).await.unwrap_err();
            if !is_ok {
                assert!(
                    matches!(error, Error::Database(DieselError::NotFound)),
                    "{error:?}"
                );
            } else if is_foreign {
                assert!(
                    matches!(error, Error::ForeignTransaction { .. }),
                    "{error:?}"
                );
            } else {
                assert!(matches!(error, Error::RolledBack { .. }), "{error:?}");
            }
            waiting.await.unwrap().unwrap();
            assert_eq!(
                db.count("SELECT count(*) FROM booking WHERE guest = 'Ada'")
                    .await,
                1
            );
            // The connection stays usable.
            conn.transaction(async |conn| insert(conn, 9, "next").await)
                .await
                .unwrap();
        }
    }
    let bodies = if debug_checks_are_on() { 4 } else { 2 };
    assert_eq!(committed(&db, 9).await, bodies);
    db.until_quiet().await;
}

#[tokio::test]
async fn a_diesel_transaction_left_open_is_rolled_back() {
    let db = database().await;
    let mut conn = db.connect().await;
    for is_ok in [true, false] {
        let mut mine = session::acquire(&mut conn, 7).await.unwrap();
        AnsiTransactionManager::begin_transaction(mine.conn())
            .await
            .unwrap();
        insert(mine.conn(), 7, "half done").await.unwrap();
        let result = if is_ok {
            Ok(())
        } else {
            Err(Error::Database(DieselError::NotFound))
        };
        let error = mine.finish(result).await.unwrap_err();
        if is_ok {
            assert!(matches!(error, Error::RolledBack { .. }), "{error:?}");
        } else {
            assert!(
                matches!(error, Error::Database(DieselError::NotFound)),
                "{error:?}"
            );
        }
        assert_eq!(held(&db).await, []);
        conn.transaction(async |conn| insert(conn, 9, "next").await)
            .await
            .unwrap();
    }
    assert_eq!([committed(&db, 7).await, committed(&db, 9).await], [0, 2]);
}

#[tokio::test]
async fn a_bodys_commits_are_visible_while_it_holds_the_lock() {
    let db = database().await;
    let mut conn = db.connect().await;
    let mut mine = session::acquire(&mut conn, 7).await.unwrap();
    for made in 1..=3 {
        mine.conn()
            .transaction::<_, DieselError, _>(async |conn| insert(conn, 7, "Ada").await)
            .await
            .unwrap();
        assert_eq!(committed(&db, 7).await, made);
        let undone = mine.conn().transaction::<(), DieselError, _>(async |conn| {
            insert(conn, 7, "undone").await?;
            Err(DieselError::RollbackTransaction)
        });
        undone.await.unwrap_err();
        // A transaction-level lock on this key, and on another, is released with it.
        let inner = xact::begin(mine.conn(), Request::all([7, 8]))
            .await
            .unwrap();
        inner.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(held(&db).await, [LockedKey::Bigint(7)]);
    }
    mine.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(committed(&db, 7).await, 3);
    db.until_quiet().await;
}
