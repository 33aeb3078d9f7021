//! The time for which a lock counts as held in the order of locks.
#![cfg(debug_assertions)]

use crate::calls::locked;
use advisory_runtime::inventory::{Edge, lock_order};
use advisory_runtime::{Error, Request, Wait, advisory_lock, session, xact};
use advisory_tests::Database;
use advisory_tests::lock_order::edges;
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};

locked!(kept_a(id) "kept-a:<id>");
locked!(kept_b(id) "kept-b:<id>");
locked!(kept_c(id) "kept-c:<id>");

#[tokio::test]
async fn a_nested_calls_lock_is_held_to_the_transactions_end() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    conn.transaction::<_, diesel::result::Error, _>(async |conn| {
        kept_a(conn, 1).await?;
        // Rolled back, and its lock released.
        let undone = conn.transaction::<(), diesel::result::Error, _>(async |conn| {
            kept_c(conn, 1).await?;
            Err(diesel::result::Error::RollbackTransaction)
        });
        undone.await.unwrap_err();
        kept_b(conn, 1).await
    })
    .await
    .unwrap();
    let known = ["kept-a:<id> > kept-b:<id>", "kept-a:<id> > kept-c:<id>"];
    assert_eq!(edges("kept-"), known);
    // Another transaction on the same connection.
    conn.transaction(async |conn| kept_c(conn, 1).await)
        .await
        .unwrap();
    conn.transaction(async |conn| kept_a(conn, 1).await)
        .await
        .unwrap();
    kept_b(&mut conn, 1).await.unwrap();
    kept_a(&mut conn, 1).await.unwrap();
    assert_eq!(edges("kept-"), known);
}

locked!(left_a(id) "left-a:<id>");
locked!(left_b(id) "left-b:<id>");
locked!(left_e(id) "left-e:<id>");

#[advisory_lock(key = "left-c:<id>")]
async fn left_c(
    conn: &mut AsyncPgConnection,
    other: &mut AsyncPgConnection,
    id: i64,
) -> QueryResult<()> {
    left_a(conn, id).await?;
    left_b(conn, id).await?;
    left_d(other, id).await
}

locked!(left_d(id) "left-d:<id>");

#[tokio::test]
async fn under_a_call_it_is_held_to_that_calls_end() {
    let db = Database::create().await;
    let (mut conn, mut other) = (db.connect().await, db.connect().await);
    left_c(&mut conn, &mut other, 1).await.unwrap();
    left_e(&mut conn, 1).await.unwrap();
    assert_eq!(
        edges("left-"),
        [
            "left-a:<id> > left-b:<id>",
            "left-a:<id> > left-d:<id>",
            "left-b:<id> > left-d:<id>",
            "left-c:<id> > left-a:<id>",
            "left-c:<id> > left-b:<id>",
            "left-c:<id> > left-d:<id>",
        ]
    );
}

locked!(test_a(id) "test-a:<id>");
locked!(test_b(id) "test-b:<id>");

#[tokio::test]
async fn locks_kept_by_a_test_transaction_are_not_the_programs_order() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    conn.begin_test_transaction().await.unwrap();
    test_a(&mut conn, 1).await.unwrap();
    test_b(&mut conn, 1).await.unwrap();
    conn.transaction(async |conn| test_a(conn, 2).await)
        .await
        .unwrap();
    conn.transaction(async |conn| test_b(conn, 2).await)
        .await
        .unwrap();
    assert!(edges("test-").is_empty());
}

locked!(by_hand(id) "hand-a:<id>");

#[tokio::test]
async fn a_lock_taken_by_hand_is_held_until_it_is_released() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let mut held = session::acquire(&mut conn, 424_243).await.unwrap();
    let inner = xact::begin(held.conn(), Request::new(424_244).wait(Wait::Never))
        .await
        .unwrap();
    inner.finish(Ok::<_, Error>(())).await.unwrap();
    by_hand(held.conn(), 1).await.unwrap();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    by_hand(&mut conn, 1).await.unwrap();
    let numbers = lock_order().edges;
    let under = numbers
        .iter()
        .filter(|edge| edge.asked.lock == "hand-a:<id>");
    let under: Vec<&Edge> = under.collect();
    assert_eq!(under.len(), 1, "{under:?}");
    assert_eq!(under[0].held.lock, "424243");
    assert!(under[0].held.place.contains("order_held.rs:"), "{under:?}");
}
