//! PostgreSQL's own behaviour with advisory locks, on which the code relies: how they are held,
//! queued, shown and refused.

use advisory_tests::LockedKey;
use advisory_tests::futures::spawn;
use advisory_tests::postgres::{code, sessions};

#[tokio::test]
async fn a_session_level_lock_survives_rollbacks_and_errors() {
    let (db, [session]) = sessions().await;
    session
        .run("BEGIN; SELECT pg_advisory_lock(42); ROLLBACK")
        .await;
    assert_eq!(db.locks().await.len(), 1);
    session
        .refused("SELECT pg_advisory_lock(43); SELECT 1/0")
        .await;
    assert_eq!(db.locks().await.len(), 2);
    session
        .refused("BEGIN; SAVEPOINT a; SELECT pg_advisory_lock(44); SELECT 1/0")
        .await;
    session.run("ROLLBACK TO SAVEPOINT a; ROLLBACK").await;
    assert_eq!(db.locks().await.len(), 3);
    session.run("DISCARD ALL").await;
    assert_eq!(db.locks().await, []);
}

#[tokio::test]
async fn unlock_returns_whether_held_and_needs_a_good_transaction() {
    let (db, [session]) = sessions().await;
    let unlock = "SELECT pg_advisory_unlock(42)";
    assert_eq!(session.run(unlock).await, ["f"]);
    session.run("BEGIN; SELECT pg_advisory_lock(42)").await;
    session.refused("SELECT 1/0").await;
    assert_eq!(session.refused(unlock).await, "25P02");
    session.run("ROLLBACK").await;
    let shared = "SELECT pg_advisory_unlock_shared(42)";
    assert_eq!(session.run(shared).await, ["f"]);
    assert_eq!(session.run(unlock).await, ["t"]);
    // A transaction-level lock cannot be released explicitly.
    session.run("BEGIN; SELECT pg_advisory_xact_lock(42)").await;
    assert_eq!(session.run(unlock).await, ["f"]);
    assert_eq!(db.locks().await.len(), 1);
}

#[tokio::test]
async fn a_session_holds_a_lock_as_often_as_it_has_taken_it() {
    let (_db, [session, other]) = sessions().await;
    session
        .run("SELECT pg_advisory_lock(42), pg_advisory_lock(42)")
        .await;
    // One level more, and the shared mode in addition to the exclusive one.
    session
        .run("BEGIN; SELECT pg_advisory_xact_lock(42), pg_advisory_xact_lock_shared(42); COMMIT")
        .await;
    session.run("SELECT pg_advisory_unlock(42)").await;
    let attempt = "SELECT pg_try_advisory_xact_lock(42)";
    assert_eq!(other.run(attempt).await, ["f"]);
    session.run("SELECT pg_advisory_unlock(42)").await;
    assert_eq!(other.run(attempt).await, ["t"]);
}

/// Passing a lock to the transaction.
#[tokio::test]
async fn a_session_lock_passes_to_its_transaction_without_a_gap() {
    let (db, [session, other]) = sessions().await;
    session
        .run(
            "BEGIN; SELECT pg_advisory_lock(42); COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ; \
             SELECT CASE WHEN pg_try_advisory_xact_lock(42) THEN pg_advisory_unlock(42) END",
        )
        .await;
    assert_eq!(other.run("SELECT pg_try_advisory_lock(42)").await, ["f"]);
    session.run("COMMIT").await;
    assert_eq!(db.locks().await, []);
}

#[tokio::test]
async fn pg_locks_shows_both_key_spaces_bit_by_bit() {
    let (db, [session]) = sessions().await;
    for key in [
        0,
        1,
        -1,
        42,
        i64::MIN,
        i64::MAX,
        0x1234_5678_9abc_def0,
        -0x1234_5678,
    ] {
        session
            .run(&format!(
                "BEGIN; SELECT pg_advisory_xact_lock('{key}'::int8)"
            ))
            .await;
        let locks = db.locks().await;
        assert_eq!(locks.len(), 1);
        assert_eq!(locks[0].key, LockedKey::Bigint(key));
        assert_eq!((&*locks[0].mode, locks[0].granted), ("ExclusiveLock", true));
        let [first, second] = [key >> 32, key & 0xffff_ffff].map(|half| half & 0xffff_ffff);
        let shown = format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND classid = {first} \
             AND objid = {second} AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        );
        assert_eq!(db.count(&shown).await, 1, "{key}");
        session.run("COMMIT").await;
    }
    for (first, second) in [(0, 0), (-1, 1), (i32::MIN, i32::MAX), (7, -7)] {
        let lock = format!(
            "BEGIN; SELECT pg_advisory_xact_lock_shared('{first}'::int4, '{second}'::int4)"
        );
        session.run(&lock).await;
        let locks = db.locks().await;
        assert_eq!(locks[0].key, LockedKey::Pair(first, second));
        assert_eq!((&*locks[0].mode, locks.len()), ("ShareLock", 1));
        session.run("COMMIT").await;
    }
    // Two keys with the same bits are two locks.
    session
        .run("SELECT pg_advisory_lock((7::int8 << 32) | 9), pg_advisory_lock(7, 9)")
        .await;
    assert_eq!(db.locks().await.len(), 2);
}

#[tokio::test]
async fn the_same_number_in_another_database_is_another_lock() {
    let ((db, [session]), (other_db, [other])) = (sessions().await, sessions().await);
    session.run("SELECT pg_advisory_lock(42)").await;
    assert_eq!(other.run("SELECT pg_try_advisory_lock(42)").await, ["t"]);
    assert_eq!(db.locks().await.len(), 1);
    assert_eq!(other_db.locks().await.len(), 1);
}

#[tokio::test]
async fn a_queued_exclusive_request_delays_later_shared_ones() {
    let (db, [holder, exclusive, shared]) = sessions().await;
    holder
        .run("BEGIN; SELECT pg_advisory_xact_lock_shared(42)")
        .await;
    let first = spawn(async move {
        exclusive
            .run("BEGIN; SELECT pg_advisory_xact_lock(42)")
            .await;
        exclusive
    });
    db.until_waiters(42, 1).await;
    let second = spawn(async move { shared.run("SELECT pg_advisory_xact_lock_shared(42)").await });
    db.until_waiters(42, 2).await;
    holder.run("COMMIT").await;
    let exclusive = first.await.unwrap();
    assert!(!second.is_finished());
    exclusive.run("COMMIT").await;
    second.await.unwrap();
}

/// Diesel hides the SQLSTATE: this distinguishes a deadlock from the two other ends of a wait.
#[tokio::test]
async fn only_a_deadlock_error_has_a_detail_and_a_hint() {
    let (db, [first, second]) = sessions().await;
    for (end, expected) in [
        ("SET LOCAL lock_timeout = '20ms'", "55P03"),
        ("SET LOCAL statement_timeout = '20ms'", "57014"),
    ] {
        first.run("BEGIN; SELECT pg_advisory_xact_lock(1)").await;
        let wait = format!("{end}; SELECT pg_advisory_xact_lock(1)");
        let error = second.send(&wait).await.unwrap_err();
        assert_eq!(code(&error), expected);
        let answer = error.as_db_error().unwrap();
        assert_eq!((answer.detail(), answer.hint()), (None, None), "{expected}");
        first.run("COMMIT").await;
    }
    first
        .run("SELECT pg_advisory_lock(9); BEGIN; SELECT pg_advisory_xact_lock(1)")
        .await;
    second
        .run("SELECT pg_advisory_lock(8); BEGIN; SELECT pg_advisory_xact_lock(2)")
        .await;
    let waits = spawn(async move {
        let end = first.send("SELECT pg_advisory_xact_lock(2)").await;
        (end, first)
    });
    db.until_waiting(2).await;
    let other = second.send("SELECT pg_advisory_xact_lock(1)").await;
    second.run("ROLLBACK").await;
    let (end, _first) = waits.await.unwrap();
    let victims: Vec<_> = [end, other].into_iter().filter_map(Result::err).collect();
    assert_eq!(victims.len(), 1, "{victims:?}");
    let answer = victims[0].as_db_error().unwrap();
    assert_eq!(answer.code().code(), "40P01");
    assert!(answer.detail().is_some() && answer.hint().is_some());
    // The victim loses its transaction's locks, and keeps its session's.
    for key in [8, 9].map(LockedKey::Bigint) {
        assert!(
            db.locks().await.iter().any(|lock| lock.key == key),
            "{key:?}"
        );
    }
}

#[tokio::test]
async fn a_client_that_dies_while_it_waits_leaves_the_queue() {
    let (db, [holder, waiter]) = sessions().await;
    holder.run("BEGIN; SELECT pg_advisory_xact_lock(42)").await;
    let waiting = spawn(async move {
        let message = "SELECT set_config('client_connection_check_interval', '100', true); SELECT pg_advisory_xact_lock(42)";
        waiter.send(message).await
    });
    db.until_waiting(42).await;
    // Dropping the connection closes the socket without a message, like a killed process.
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    db.until_no_waiters(42).await;
}
