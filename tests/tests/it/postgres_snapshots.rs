//! PostgreSQL's own behaviour with snapshots and clocks, on which the code relies: what is visible
//! after a wait.

use advisory_tests::Database;
use advisory_tests::futures::spawn;
use advisory_tests::postgres::{Session, sessions};

/// What a session reads after its wait for a holder that has committed a row meanwhile.
async fn read(db: &Database, before: &str, waits: &str, end: &str) -> String {
    let (holder, waiter) = (Session::open(db).await, Session::open(db).await);
    holder
        .run("DROP TABLE IF EXISTS t; CREATE TABLE t ()")
        .await;
    holder.run("BEGIN; SELECT pg_advisory_xact_lock(42)").await;
    waiter.run(before).await;
    let (waits, end) = (waits.to_owned(), end.to_owned());
    let waiting = spawn(async move {
        let mut rows = waiter.run(&waits).await;
        waiter.run(&end).await;
        rows.pop().unwrap()
    });
    db.until_waiting(42).await;
    holder.run("INSERT INTO t DEFAULT VALUES; COMMIT").await;
    let read = waiting.await.unwrap();
    db.until_no_locks().await;
    read
}

const COUNT: &str = "SELECT count(*) FROM t";

#[tokio::test]
async fn a_statement_after_the_lock_sees_the_previous_holders_commit() {
    let db = Database::create().await;
    for waits in [
        format!("SELECT pg_advisory_xact_lock(42); {COUNT}"),
        format!("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(42); {COUNT}"),
        format!(
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(42); BEGIN; {COUNT}"
        ),
    ] {
        let count = read(&db, "SELECT", &waits, "COMMIT").await;
        assert_eq!(count, "1", "{waits}");
    }
}

/// So the lock is a separate statement, and the session's snapshot is never older than it.
#[tokio::test]
async fn a_lock_in_the_reading_statement_sees_stale_rows() {
    let db = Database::create().await;
    for waits in [
        "SELECT (SELECT count(*) FROM t) FROM (SELECT pg_advisory_xact_lock(42) OFFSET 0) AS lock",
        "WITH lock AS MATERIALIZED (SELECT pg_advisory_xact_lock(42)) SELECT (SELECT count(*) FROM t) FROM lock",
    ] {
        let count = read(&db, "SELECT", waits, "COMMIT").await;
        assert_eq!(count, "0", "{waits}");
    }
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let waits =
            format!("BEGIN ISOLATION LEVEL {level}; SELECT pg_advisory_xact_lock(42); {COUNT}");
        let count = read(&db, "SELECT", &waits, "ROLLBACK").await;
        assert_eq!(count, "0", "{waits}");
        let set = format!("SET default_transaction_isolation = '{level}'");
        let waits = format!("SELECT pg_advisory_xact_lock(42); {COUNT}");
        let count = read(&db, &set, &waits, "SELECT").await;
        assert_eq!(count, "0", "{level}: {waits}");
    }
}

#[tokio::test]
async fn a_snapshot_after_a_session_level_lock_is_always_fresh() {
    let db = Database::create().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let waits = format!(
            "BEGIN; SAVEPOINT a; SELECT pg_advisory_lock(42); COMMIT; BEGIN ISOLATION LEVEL {level}; \
             SELECT pg_try_advisory_xact_lock(42), pg_advisory_unlock(42); {COUNT}"
        );
        let count = read(&db, "SELECT", &waits, "COMMIT").await;
        assert_eq!(count, "1", "{level}");
        // Without the first, separate transaction, the snapshot of the wait is that of the message.
        let set = format!("SET default_transaction_isolation = '{level}'");
        let waits = format!("SELECT pg_advisory_lock(42); {COUNT}");
        let end = "SELECT pg_advisory_unlock(42)";
        assert_eq!(read(&db, &set, &waits, end).await, "0", "{level}");
    }
}

/// A message can find out in this way whether a transaction is open.
#[tokio::test]
async fn now_is_the_statements_time_only_outside_a_transaction() {
    let (_db, [session]) = sessions().await;
    let same = "SELECT now() = statement_timestamp()";
    let message = format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; {same}; SELECT pg_sleep(0.002); {same}; BEGIN; {same}"
    );
    let rows = session.run(&message).await;
    assert_eq!([&rows[0], &rows[2], &rows[3]], ["t", "t", "t"]);
    assert_eq!(session.run(same).await, ["f"]);
    session.run("COMMIT").await;
    assert_eq!(session.run(&format!("BEGIN; {same}")).await, ["t"]);
    assert_eq!(session.run(&format!("SAVEPOINT a; {same}")).await, ["f"]);
    session.run("COMMIT AND CHAIN").await;
    assert_eq!(session.run(same).await, ["f"]);
}

/// A budget counts from the arrival of its message.
#[tokio::test]
async fn the_statements_time_is_the_messages_and_the_clock_advances() {
    let (_db, [session]) = sessions().await;
    for message in [
        "SELECT statement_timestamp(); SELECT pg_sleep(0.005); SELECT statement_timestamp()",
        "BEGIN; SELECT statement_timestamp(); SELECT pg_sleep(0.005); COMMIT; BEGIN; SELECT statement_timestamp(); COMMIT",
    ] {
        let rows = session.run(message).await;
        assert_eq!(rows[0], rows[2], "{message}");
    }
    let went = "SELECT pg_sleep(0.005); SELECT clock_timestamp() - statement_timestamp() >= '5 ms'";
    assert_eq!(session.run(went).await[1], "t");
    let went = "SELECT clock_timestamp() - statement_timestamp() >= '5 ms' FROM pg_sleep(0.005)";
    assert_eq!(session.run(went).await, ["t"]);
}
