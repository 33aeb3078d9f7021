//! Async Diesel: transactions that are ended by hand or dropped around locked calls.
//! `both/nesting.rs` has what both drivers promise.

use crate::calls::book;
use advisory_runtime::{Error, Request, Wait, advisory_lock, xact};
use advisory_tests::bookings::{
    committed, database, diesel_outcome, execute, in_transaction, insert, run,
};
use diesel::QueryResult;
use diesel::result::Error as DieselError;
use diesel_async::AsyncPgConnection;

#[tokio::test]
async fn a_call_in_a_transaction_ended_by_hand_poisons_what_is_left() {
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
        diesel_outcome(is_ok)
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

#[tokio::test]
async fn a_nested_call_works_for_a_read_uncommitted_role() {
    let db = database().await;
    let mut conn = db.connect().await;
    run(
        &mut conn,
        "SET default_transaction_isolation = 'read uncommitted'",
    )
    .await;
    for (room, is_first) in [(7, true), (8, false)] {
        in_transaction::<_, DieselError>(&mut conn, async |conn| {
            if !is_first {
                execute(conn, "SELECT 1").await?;
            }
            assert!(book(conn, room, "Ada").await?);
            for wait in [Wait::Never, Wait::Session] {
                xact::lock(conn, Request::new(9).wait(wait)).await?;
            }
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(committed(&db, room).await, 1);
    }
    db.until_no_locks().await;
}
