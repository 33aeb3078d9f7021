//! `advisory_holds` and `advisory_require` see only the locks of their own session, in exclusive
//! mode.

use crate::{EmailLock, migrated, says};
use advisory_runtime::xact;
use diesel::result::Error;
use diesel_async::SimpleAsyncConnection;

const REQUIRE: &str = "SELECT advisory_require(email_to_lock_id('user@x.com'), 'email')";

const KEYS: [i64; 5] = [0, 1, -1, i64::MIN, i64::MAX];

#[tokio::test]
async fn this_sessions_lock_is_held_at_either_level_until_released() {
    let (db, mut conn) = migrated().await;
    let mut other = db.connect().await;
    for key in KEYS {
        let holds = format!("advisory_holds({key})");
        assert!(!says(&mut conn, &holds).await, "{key}");
        let begin = format!("BEGIN; SAVEPOINT s; SELECT pg_advisory_xact_lock({key})");
        conn.batch_execute(&begin).await.unwrap();
        assert!(says(&mut conn, &holds).await, "{key}");
        assert!(!says(&mut other, &holds).await, "{key}: another session's");
        conn.batch_execute("ROLLBACK TO s").await.unwrap();
        assert!(!says(&mut conn, &holds).await, "{key}: rolled back");
        let hold = format!("COMMIT; SELECT pg_advisory_lock({key})");
        conn.batch_execute(&hold).await.unwrap();
        assert!(says(&mut conn, &holds).await, "{key}: session-level");
        conn.batch_execute("SELECT pg_advisory_unlock_all()")
            .await
            .unwrap();
        assert!(!says(&mut conn, &holds).await, "{key}: released");
    }
}

#[tokio::test]
async fn a_shared_lock_a_pair_and_a_wait_are_not_enough() {
    let (db, mut conn) = migrated().await;
    let mut other = db.connect().await;
    conn.batch_execute("SELECT pg_advisory_lock_shared(7), pg_advisory_lock(0, 8)")
        .await
        .unwrap();
    assert!(!says(&mut conn, "advisory_holds(7)").await, "shared");
    assert!(!says(&mut conn, "advisory_holds(8)").await, "a pair");
    other
        .batch_execute("SELECT pg_advisory_lock(9)")
        .await
        .unwrap();
    let waits = "SET lock_timeout = '50ms'; SELECT pg_advisory_lock(9)";
    conn.batch_execute(waits).await.unwrap_err();
    assert!(!says(&mut conn, "advisory_holds(9)").await, "waited for");
}

#[tokio::test]
async fn a_statement_sees_the_lock_that_it_takes_itself() {
    let (_db, mut conn) = migrated().await;
    let each =
        "bool_and(held) FROM (SELECT pg_advisory_lock(7), advisory_holds(7) AS held OFFSET 0) AS s";
    assert!(says(&mut conn, each).await);
}

#[tokio::test]
async fn a_locked_call_satisfies_the_requirement() {
    let (_db, mut conn) = migrated().await;
    let email = "user@x.com";
    let mut lock = xact::begin(&mut conn, EmailLock { email }).await.unwrap();
    let required = lock.conn().batch_execute(REQUIRE).await;
    lock.finish(required).await.unwrap();
}

#[tokio::test]
async fn an_unmet_requirement_names_the_lock_but_not_its_key() {
    let (_db, mut conn) = migrated().await;
    let error = conn.batch_execute(REQUIRE).await.unwrap_err();
    let Error::DatabaseError(_, said) = &error else {
        panic!("{error}");
    };
    assert_eq!(
        said.message(),
        "this session does not hold the advisory lock \"email\""
    );
    let hint = said.hint().unwrap();
    assert!(
        hint.starts_with("Take the lock before this statement"),
        "{hint}"
    );
}
