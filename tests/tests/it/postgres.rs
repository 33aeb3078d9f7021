//! PostgreSQL's own behaviour with messages, transactions and savepoints, on which the code relies.
//! A version that behaves differently fails here, not in a booking.

use advisory_tests::postgres::sessions;

#[tokio::test]
async fn a_begin_at_the_end_of_a_message_keeps_its_locks() {
    let (db, [session]) = sessions().await;
    session.run("SELECT pg_advisory_xact_lock(42); BEGIN").await;
    assert_eq!(db.locks().await.len(), 1);
    assert!(!session.is_idle().await);
    session.run("COMMIT").await;
    assert_eq!(db.locks().await, []);
}

#[tokio::test]
async fn an_error_before_that_begin_leaves_the_session_idle() {
    let (db, [holder, session]) = sessions().await;
    holder.run("BEGIN; SELECT pg_advisory_xact_lock(2)").await;
    for (setting, expected) in [("lock_timeout", "55P03"), ("statement_timeout", "57014")] {
        let message = format!(
            "SELECT set_config('{setting}', '20', true), pg_advisory_xact_lock(1); SELECT pg_advisory_xact_lock(2); BEGIN"
        );
        assert_eq!(session.refused(&message).await, expected);
        assert!(session.is_idle().await);
        assert_eq!(db.locks().await.len(), 1, "the holder's");
    }
    let message = "SELECT pg_advisory_xact_lock(1); SELECT 1/0; BEGIN";
    assert_eq!(session.refused(message).await, "22012");
    assert!(session.is_idle().await);
    assert_eq!(db.locks().await.len(), 1, "the holder's");
}

#[tokio::test]
async fn the_level_is_set_before_the_lock_and_not_by_begin() {
    let (_db, [session]) = sessions().await;
    let late = "SELECT pg_advisory_xact_lock(42); BEGIN ISOLATION LEVEL REPEATABLE READ";
    assert_eq!(session.refused(late).await, "25001");
    for default in ["read committed", "repeatable read", "serializable"] {
        let set = format!("SET default_transaction_isolation = '{default}'");
        session.run(&set).await;
        let early = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(42); BEGIN";
        session.run(early).await;
        let level = session.run("SHOW transaction_isolation").await;
        assert_eq!(level, ["read committed"], "under {default}");
        session.run("COMMIT").await;
    }
}

#[tokio::test]
async fn a_failed_transaction_refuses_statements_but_not_commit() {
    let (db, [session]) = sessions().await;
    session.run("CREATE TABLE t ()").await;
    session
        .refused("BEGIN; INSERT INTO t DEFAULT VALUES; SELECT 1/0")
        .await;
    session.run("COMMIT").await;
    assert_eq!(db.count("SELECT count(*) FROM t").await, 0);
    session
        .refused("BEGIN; INSERT INTO t DEFAULT VALUES; SELECT 1/0")
        .await;
    assert_eq!(session.refused("SELECT; COMMIT").await, "25P02");
    session.run("ROLLBACK").await;
    assert_eq!(db.count("SELECT count(*) FROM t").await, 0);
}

/// `ROLLBACK` and the empty `SELECT` are sent to sessions in any state.
#[tokio::test]
async fn rollback_always_works_and_select_not_in_a_failed_transaction() {
    let (_db, [session]) = sessions().await;
    session.run("ROLLBACK").await;
    session.run("SELECT").await;
    session.run("BEGIN").await;
    session.run("SELECT").await;
    session.refused("SELECT 1/0").await;
    assert_eq!(session.refused("SELECT").await, "25P02");
    session.run("ROLLBACK").await;
    // In one message the ROLLBACK ends the failed transaction, and what follows is in the next.
    session.refused("BEGIN; SELECT 1/0").await;
    session
        .refused("ROLLBACK; BEGIN; SELECT CAST('not a number' AS int4)")
        .await;
    assert_eq!(session.refused("SELECT").await, "25P02");
    session.run("ROLLBACK").await;
}

#[tokio::test]
async fn an_error_or_the_end_of_a_transaction_releases_its_locks() {
    let (db, [session]) = sessions().await;
    for end in [
        "SELECT 1/0",
        "COMMIT",
        "COMMIT AND CHAIN",
        "ROLLBACK AND CHAIN",
    ] {
        session.run("BEGIN; SELECT pg_advisory_xact_lock(42)").await;
        assert_eq!(db.locks().await.len(), 1);
        drop(session.send(end).await);
        // The error is sent before the transaction is undone; the next statement is answered after
        // that.
        drop(session.send("SELECT").await);
        assert_eq!(db.locks().await, [], "after {end}");
        session.run("ROLLBACK").await;
    }
}

#[tokio::test]
async fn rollback_to_a_savepoint_frees_later_locks_release_does_not() {
    let (db, [session]) = sessions().await;
    session
        .run("BEGIN; SELECT pg_advisory_xact_lock(1); SAVEPOINT a; SELECT pg_advisory_xact_lock(2); ROLLBACK TO SAVEPOINT a")
        .await;
    assert_eq!(db.locks().await.len(), 1);
    session
        .run("SAVEPOINT b; SELECT pg_advisory_xact_lock(2); RELEASE SAVEPOINT b")
        .await;
    assert_eq!(db.locks().await.len(), 2);
    session.run("COMMIT").await;
    assert_eq!(db.locks().await, []);
}

#[tokio::test]
async fn an_error_after_a_savepoint_keeps_the_transaction_before_it() {
    let (db, [session]) = sessions().await;
    session.run("BEGIN; SELECT pg_advisory_xact_lock(1)").await;
    session
        .refused("SAVEPOINT a; SELECT pg_advisory_xact_lock(2); SELECT 1/0")
        .await;
    assert_eq!(session.refused("SELECT").await, "25P02");
    session.run("ROLLBACK TO SAVEPOINT a; SELECT 1").await;
    assert_eq!(db.locks().await.len(), 1);
    // Outside a transaction, or without a savepoint of this name, it is refused.
    session.run("COMMIT").await;
    assert_eq!(session.refused("ROLLBACK TO SAVEPOINT a").await, "25P01");
    session.run("BEGIN").await;
    assert_eq!(session.refused("ROLLBACK TO SAVEPOINT a").await, "3B001");
}

#[tokio::test]
async fn a_savepoint_survives_rollback_and_a_second_one_shadows_it() {
    let (_db, [session]) = sessions().await;
    let value = "SELECT current_setting('advisory.at', true)";
    let set = |at: &str| format!("SELECT set_config('advisory.at', '{at}', true)");
    session
        .run(&format!(
            "BEGIN; {}; SAVEPOINT a; {}",
            set("first"),
            set("inside")
        ))
        .await;
    session.run("ROLLBACK TO SAVEPOINT a").await;
    assert_eq!(session.run(value).await, ["first"]);
    session
        .run(&format!(
            "{}; SAVEPOINT a; {}",
            set("second"),
            set("inside")
        ))
        .await;
    session.run("ROLLBACK TO SAVEPOINT a").await;
    assert_eq!(session.run(value).await, ["second"]);
    // When it is released, the previous one of that name is visible again.
    session
        .run("RELEASE SAVEPOINT a; ROLLBACK TO SAVEPOINT a")
        .await;
    assert_eq!(session.run(value).await, ["first"]);
    session.run("RELEASE SAVEPOINT a").await;
    assert_eq!(session.refused("RELEASE SAVEPOINT a").await, "3B001");
}

/// How a message fails on a condition, with an error that says which.
#[tokio::test]
async fn an_untaken_cast_does_not_fail_and_a_marker_is_in_the_text() {
    let (_db, [session]) = sessions().await;
    let check = |value: &str| {
        format!(
            "SELECT CAST(CASE WHEN current_setting('advisory.x', true) = '{value}' THEN '1' ELSE 'advisory:marker' END AS int4)"
        )
    };
    session.run("SET advisory.x = 'right'").await;
    session.run(&check("right")).await;
    let error = session.send(&check("wrong")).await.unwrap_err();
    let message = error.as_db_error().unwrap().message();
    assert!(message.contains("advisory:marker"), "{message}");
    // Simpler expressions are evaluated during planning, whatever the condition is.
    let folded =
        "SELECT CASE WHEN current_setting('advisory.x', true) = 'right' THEN 1 ELSE 1/0 END";
    assert_eq!(session.refused(folded).await, "22012");
}

#[tokio::test]
async fn a_backend_that_terminates_itself_runs_nothing_more() {
    let (db, [session]) = sessions().await;
    session
        .run("CREATE TABLE t (); SELECT pg_advisory_lock(42)")
        .await;
    let end = "BEGIN; SELECT pg_terminate_backend(pg_backend_pid()); COMMIT; INSERT INTO t DEFAULT VALUES";
    assert_eq!(session.refused(end).await, "57P01");
    db.until_no_locks().await;
    assert_eq!(db.count("SELECT count(*) FROM t").await, 0);
}
