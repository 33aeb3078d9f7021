//! The body of a session-level lock runs without a transaction: it may run several, and one that it
//! leaves open is rolled back.

use super::super::{
    Conn, acquire, batch, begin, begin_transaction, connect, end, execute, in_transaction, insert,
    spawn,
};
use advisory_runtime::{Error, Request};
use advisory_tests::bookings::{committed, database, outcome};
use advisory_tests::held_keys::held;
use advisory_tests::{LockedKey, assert_error, assert_matches, debug_checks_are_on};
use diesel::result::Error as DieselError;

/// Commits one of Diesel's transactions.
async fn next(conn: &mut Conn) {
    in_transaction::<_, DieselError>(conn, async |conn| insert(conn, 9, "next").await)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_left_open_is_rolled_back_before_the_release() {
    let db = database().await;
    insert(&mut connect(&db).await, 1, "Ada").await.unwrap();
    for (failure, is_foreign) in [("", true), ("; SELECT 1/0", false)] {
        // A transaction that stays open is found in debug builds only.
        if is_foreign && !debug_checks_are_on() {
            continue;
        }
        for is_ok in [true, false] {
            let (mut conn, mut waiter) = (connect(&db).await, connect(&db).await);
            let mut mine = acquire(&mut conn, 7).await.unwrap();
            let waiting = spawn(async move {
                let mut mine = acquire(&mut waiter, 7).await?;
                // Fails if an earlier transaction still has the row.
                let row = "SELECT FROM booking WHERE room = 1 FOR UPDATE NOWAIT";
                let free = execute(mine.conn(), row).await.map(drop);
                end(mine, free.map_err(Error::Database)).await
            });
            db.until_waiting(7).await;
            let open = format!("BEGIN; UPDATE booking SET guest = 'half done'{failure}");
            drop(batch(mine.conn(), &open).await);
            let result = outcome(is_ok);
            let error = end(mine, result).await.unwrap_err();
            if !is_ok {
                assert_matches!(error, Error::Database(DieselError::NotFound));
            } else if is_foreign {
                assert_error!(error, ForeignTransaction);
            } else {
                assert_error!(error, RolledBack);
            }
            waiting.await.unwrap().unwrap();
            assert_eq!(
                db.count("SELECT count(*) FROM booking WHERE guest = 'Ada'")
                    .await,
                1
            );
            // The connection stays usable.
            next(&mut conn).await;
        }
    }
    let bodies = if debug_checks_are_on() { 4 } else { 2 };
    assert_eq!(committed(&db, 9).await, bodies);
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_diesel_transaction_left_open_is_rolled_back() {
    let db = database().await;
    let mut conn = connect(&db).await;
    for is_ok in [true, false] {
        let mut mine = acquire(&mut conn, 7).await.unwrap();
        begin_transaction(mine.conn()).await.unwrap();
        insert(mine.conn(), 7, "half done").await.unwrap();
        let result = outcome(is_ok);
        let error = end(mine, result).await.unwrap_err();
        if is_ok {
            assert_error!(error, RolledBack);
        } else {
            assert_matches!(error, Error::Database(DieselError::NotFound));
        }
        assert_eq!(held(&db).await, []);
        next(&mut conn).await;
    }
    assert_eq!([committed(&db, 7).await, committed(&db, 9).await], [0, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bodys_commits_are_visible_while_it_holds_the_lock() {
    let db = database().await;
    let mut conn = connect(&db).await;
    let mut mine = acquire(&mut conn, 7).await.unwrap();
    for made in 1..=3 {
        in_transaction::<_, DieselError>(mine.conn(), async |conn| insert(conn, 7, "Ada").await)
            .await
            .unwrap();
        assert_eq!(committed(&db, 7).await, made);
        let undone = in_transaction::<(), DieselError>(mine.conn(), async |conn| {
            insert(conn, 7, "undone").await?;
            Err(DieselError::RollbackTransaction)
        });
        undone.await.unwrap_err();
        // A transaction-level lock on this key, and on another, is released with it.
        let inner = begin(mine.conn(), Request::all([7, 8])).await.unwrap();
        end(inner, Ok::<_, Error>(())).await.unwrap();
        assert_eq!(held(&db).await, [LockedKey::Bigint(7)]);
    }
    end(mine, Ok::<_, Error>(())).await.unwrap();
    assert_eq!(committed(&db, 7).await, 3);
    db.until_quiet().await;
}
