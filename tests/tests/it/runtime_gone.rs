//! A runtime that is shut down takes its connections with it. A call in progress leaves nothing on
//! the server.

use advisory_runtime::{Request, session, xact};
use advisory_tests::bookings::database;
use advisory_tests::futures::spawn_blocking;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};

/// Runs a call on its own runtime, which is shut down while a statement runs that would take a
/// minute.
async fn ends_in_a_statement(is_session: bool) {
    let db = database().await;
    let url = db.url().to_owned();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.spawn(async move {
        let mut conn = AsyncPgConnection::establish(&url).await.unwrap();
        let mut held = if is_session {
            session::acquire(&mut conn, Request::new(7)).await.unwrap()
        } else {
            xact::begin(&mut conn, Request::new(7)).await.unwrap()
        };
        held.conn()
            .batch_execute("SELECT pg_sleep(60)")
            .await
            .unwrap();
    });
    db.until_empty(
        std::time::Duration::from_secs(30),
        "the statement of the call",
        "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(60)' \
         AND datname = current_database())",
    )
    .await;
    assert_eq!(db.locks().await.len(), 1);
    spawn_blocking(move || drop(runtime)).await.unwrap();
    db.until_no_locks().await;
}

#[tokio::test]
async fn a_transaction_level_lock_goes_with_its_runtime() {
    ends_in_a_statement(false).await;
}

#[tokio::test]
async fn a_session_level_lock_goes_with_its_runtime() {
    ends_in_a_statement(true).await;
}
