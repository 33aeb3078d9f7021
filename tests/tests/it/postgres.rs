//! What the code relies on PostgreSQL itself to do. A version that does otherwise fails here, and not in a booking.

use crate::bookings::{database, execute};
use advisory_tests::Database;
use diesel_async::SimpleAsyncConnection;

#[tokio::test]
async fn a_begin_at_the_end_of_a_message_keeps_its_locks() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    conn.batch_execute("SELECT pg_advisory_xact_lock(42); BEGIN")
        .await
        .unwrap();
    assert_eq!(db.locks().await.len(), 1);
    conn.batch_execute("COMMIT").await.unwrap();
    assert_eq!(db.locks().await, []);
}

#[tokio::test]
async fn an_error_before_that_begin_leaves_the_session_idle() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    conn.batch_execute("SELECT pg_advisory_xact_lock(42); SELECT 1/0; BEGIN")
        .await
        .unwrap_err();
    execute(&mut conn, "SELECT 1").await.unwrap();
    db.until_quiet().await;
}

#[tokio::test]
async fn commit_of_a_failed_transaction_is_no_error_but_any_statement_before_it_is() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    conn.batch_execute("BEGIN; SELECT 1/0").await.unwrap_err();
    conn.batch_execute("COMMIT").await.unwrap();
    conn.batch_execute("BEGIN; SELECT 1/0").await.unwrap_err();
    conn.batch_execute("SELECT; COMMIT").await.unwrap_err();
    conn.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn rollback_to_a_savepoint_frees_a_lock_and_release_keeps_it() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    conn.batch_execute(
        "BEGIN; SAVEPOINT a; SELECT pg_advisory_xact_lock(42); ROLLBACK TO SAVEPOINT a",
    )
    .await
    .unwrap();
    assert_eq!(db.locks().await, []);
    conn.batch_execute("SAVEPOINT b; SELECT pg_advisory_xact_lock(42); RELEASE SAVEPOINT b")
        .await
        .unwrap();
    assert_eq!(db.locks().await.len(), 1);
    conn.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_local_setting_ends_with_its_transaction() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let token = "SELECT CAST(CASE WHEN coalesce(current_setting('advisory.token', true), '') = '' THEN '1' ELSE 'x' END AS int)";
    conn.batch_execute("BEGIN; SELECT set_config('advisory.token', '1', true); COMMIT")
        .await
        .unwrap();
    conn.batch_execute(token).await.unwrap();
    conn.batch_execute("BEGIN; SELECT set_config('advisory.token', '1', true); COMMIT AND CHAIN")
        .await
        .unwrap();
    conn.batch_execute(token).await.unwrap();
    conn.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn in_the_message_that_opens_a_transaction_now_is_the_statements_time_and_later_it_is_not() {
    let db = Database::create().await;
    let mut conn = db.connect().await;
    let opens = "SELECT CAST(CASE WHEN now() = statement_timestamp() THEN '1' ELSE 'x' END AS int)";
    conn.batch_execute(&format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; {opens}; {opens}"
    ))
    .await
    .unwrap();
    conn.batch_execute("BEGIN").await.unwrap();
    conn.batch_execute(opens).await.unwrap_err();
    conn.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn a_client_that_dies_while_it_waits_leaves_the_queue() {
    let db = database().await;
    let mut holder = db.connect().await;
    holder
        .batch_execute("BEGIN; SELECT pg_advisory_xact_lock(42)")
        .await
        .unwrap();
    let mut waiter = db.connect().await;
    let waiting = tokio::spawn(async move {
        let sql =
            "SET LOCAL client_connection_check_interval = 100; SELECT pg_advisory_xact_lock(42)";
        waiter.batch_execute(sql).await
    });
    db.until_waiting(42).await;
    // Dropping the connection closes the socket without a word, as a killed process does.
    waiting.abort();
    drop(waiting.await);
    db.until_no_waiters(42).await;
}
