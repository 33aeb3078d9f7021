//! PostgreSQL's own behaviour with timeouts and settings, on which the code relies: when each
//! timeout starts, and what it ends; where settings are read, and how long they last.

use advisory_runtime::xact;
use advisory_tests::futures::spawn;
use advisory_tests::postgres::{Session, sessions};
use advisory_tests::statements::run;
use advisory_tests::{Database, assert_error};
use std::time::{Duration, Instant};

async fn major(session: &Session) -> u32 {
    let number = session.run("SHOW server_version_num").await;
    number[0].parse::<u32>().unwrap() / 10_000
}

/// Sleeps. These tests are about timeouts, so there is no state to wait for.
async fn pass(time: Duration) {
    let never = std::future::pending::<()>();
    tokio::time::timeout(time, never).await.unwrap_err();
}

/// Five times this is more than 4 seconds, and once is so much less that a busy machine does not
/// exceed it.
const PART: Duration = Duration::from_millis(900);

#[tokio::test]
async fn lock_timeout_is_read_at_each_wait_within_one_statement() {
    let (_db, [holder, session]) = sessions().await;
    holder.run("BEGIN; SELECT pg_advisory_xact_lock(42)").await;
    session.run("SET lock_timeout = '60s'").await;
    let started = Instant::now();
    let message = "SELECT pg_advisory_xact_lock(1), set_config('lock_timeout', '20', true), pg_advisory_xact_lock(42)";
    assert_eq!(session.refused(message).await, "55P03");
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(session.run("SHOW lock_timeout").await, ["1min"]);
}

#[tokio::test]
async fn lock_timeout_counts_for_each_wait_and_not_for_all_of_them() {
    let (db, [holder, session]) = sessions().await;
    holder
        .run("SELECT pg_advisory_lock(key) FROM generate_series(1, 5) AS key")
        .await;
    let started = Instant::now();
    let waiting = spawn(async move {
        session
            .run("SET lock_timeout = '4s'; SELECT pg_advisory_lock(key) FROM generate_series(1, 5) AS key")
            .await
    });
    for key in 1..=5 {
        db.until_waiting(key).await;
        pass(PART).await;
        holder
            .run(&format!("SELECT pg_advisory_unlock({key})"))
            .await;
    }
    waiting.await.unwrap();
    assert!(started.elapsed() > Duration::from_secs(4));
}

#[tokio::test]
async fn a_statement_timeout_in_a_message_applies_to_later_statements() {
    let (_db, [session]) = sessions().await;
    let message = "SELECT set_config('statement_timeout', '20', true); SELECT pg_sleep(60)";
    assert_eq!(session.refused(message).await, "57014");
    // For each of them, not for all together.
    let parts = format!("; SELECT pg_sleep({})", PART.as_secs_f32()).repeat(5);
    session
        .run(&format!("SET statement_timeout = '4s'{parts}"))
        .await;
}

#[tokio::test]
async fn the_idle_time_outs_end_the_session_and_free_its_locks() {
    let db = Database::create().await;
    for (message, code) in [
        (
            "SELECT set_config('idle_in_transaction_session_timeout', '50', true), pg_advisory_xact_lock(42); BEGIN",
            "25P03",
        ),
        (
            "SELECT set_config('idle_session_timeout', '50', false), pg_advisory_lock(42)",
            "57P05",
        ),
    ] {
        let mut session = Session::open(&db).await;
        session.run(message).await;
        db.until_no_locks().await;
        assert_eq!(session.ended().await, code);
    }
}

#[tokio::test]
async fn idle_time_starts_again_after_each_statement() {
    let (_db, [session]) = sessions().await;
    session
        .run("SELECT set_config('idle_in_transaction_session_timeout', '4s', true); BEGIN")
        .await;
    session.run("SELECT pg_sleep(4.1)").await;
    for _ in 0..5 {
        pass(PART).await;
        session.run("SELECT").await;
    }
    session.run("COMMIT").await;
}

#[tokio::test]
async fn transaction_timeout_exists_since_17_and_counts_from_its_set() {
    let (_db, [session]) = sessions().await;
    let read = "SELECT current_setting('transaction_timeout', true)";
    if major(&session).await < 17 {
        assert_eq!(session.run(read).await, ["NULL"]);
        return;
    }
    assert_eq!(session.run(read).await, ["0"]);
    // An earlier wait does not count, a later BEGIN keeps it, and a running statement is ended. In
    // one message: between two the session would be idle for as long as this process is slow.
    let started = Instant::now();
    let message = "SELECT pg_sleep(0.5); SELECT set_config('transaction_timeout', '400', true); BEGIN; SELECT pg_sleep(60)";
    assert_eq!(session.refused(message).await, "25P04");
    let after = started.elapsed();
    assert!(after >= Duration::from_millis(900), "{after:?}");
    assert!(after < Duration::from_secs(50), "{after:?}");
}

/// The guide's page on waiting says so.
#[tokio::test]
async fn transaction_timeout_ends_a_session_that_waits_for_a_lock() {
    let (db, [holder, session]) = sessions().await;
    if major(&session).await < 17 {
        return;
    }
    holder.run("SELECT pg_advisory_lock(42)").await;
    session.run("SET transaction_timeout = '100ms'").await;
    let lock = "SELECT pg_advisory_lock(42)";
    assert_eq!(session.refused(lock).await, "25P04");
    let mut conn = db.connect().await;
    run(&mut conn, "SET transaction_timeout = '100ms'").await;
    assert_error!(xact::begin(&mut conn, 42).await, Database);
}

/// So it is first switched off if a longer one may be running.
#[tokio::test]
async fn a_running_transaction_timeout_is_shortened_only_via_zero() {
    let (_db, [session]) = sessions().await;
    if major(&session).await < 17 {
        return;
    }
    session.run("SET transaction_timeout = '30s'").await;
    session
        .run("SELECT set_config('transaction_timeout', '100', true); BEGIN; SELECT pg_sleep(0.5); COMMIT")
        .await;
    let message = "SELECT set_config('transaction_timeout', '0', true), set_config('transaction_timeout', '100', true); BEGIN; \
                   SELECT pg_sleep(20)";
    assert_eq!(session.refused(message).await, "25P04");
}

/// The transaction's timeout ends an idle session too; then the other does not count.
#[tokio::test]
async fn a_shorter_transaction_timeout_replaces_the_idle_one() {
    let (db, [mut session]) = sessions().await;
    if major(&session).await < 17 {
        return;
    }
    session
        .run(
            "SELECT set_config('idle_in_transaction_session_timeout', '100', true), set_config('transaction_timeout', '100', true), \
             pg_advisory_xact_lock(42); BEGIN",
        )
        .await;
    db.until_no_locks().await;
    assert_eq!(session.ended().await, "25P04");
}

#[tokio::test]
async fn a_custom_setting_is_null_before_and_empty_after_its_use() {
    let (_db, [session]) = sessions().await;
    let read = "SELECT current_setting('advisory.mark', true)";
    assert_eq!(session.run(read).await, ["NULL"]);
    session
        .run("BEGIN; SELECT set_config('advisory.mark', '1', true); COMMIT")
        .await;
    assert_eq!(session.run(read).await, [""]);
    session
        .run("BEGIN; SELECT set_config('advisory.mark', '1', true); COMMIT AND CHAIN")
        .await;
    assert_eq!(session.run(read).await, [""]);
    session.run("ROLLBACK").await;
    let unknown = "SELECT current_setting('advisory.other')";
    assert_eq!(session.refused(unknown).await, "42704");
}

#[tokio::test]
async fn a_local_setting_of_a_message_is_kept_by_the_begin_at_its_end() {
    let (_db, [session]) = sessions().await;
    session
        .run("SELECT set_config('advisory.mark', '1', true), set_config('lock_timeout', '7', true); BEGIN")
        .await;
    assert_eq!(session.run("SHOW advisory.mark").await, ["1"]);
    assert_eq!(session.run("SHOW lock_timeout").await, ["7ms"]);
    session.run("COMMIT").await;
    assert_eq!(session.run("SHOW lock_timeout").await, ["0"]);
}

#[tokio::test]
async fn a_session_setting_is_kept_by_commit_and_undone_by_rollback() {
    let (_db, [session]) = sessions().await;
    let read = "SELECT current_setting('advisory.step', true)";
    session
        .run("BEGIN; SELECT set_config('advisory.step', '1', false); COMMIT")
        .await;
    session
        .run("BEGIN; SELECT set_config('advisory.step', '2', false); ROLLBACK")
        .await;
    session
        .refused("SELECT set_config('advisory.step', '3', false); SELECT 1/0")
        .await;
    session
        .refused("BEGIN; SELECT set_config('advisory.step', '4', false); COMMIT; BEGIN; SELECT 1/0")
        .await;
    session.run("ROLLBACK").await;
    assert_eq!(session.run(read).await, ["4"]);
}

#[tokio::test]
async fn a_target_list_is_evaluated_from_left_to_right() {
    let (_db, [session]) = sessions().await;
    let values = session
        .run(
            "SELECT concat_ws(',', current_setting('lock_timeout'), set_config('lock_timeout', '1', true), \
             current_setting('lock_timeout'), set_config('lock_timeout', '2', true), current_setting('lock_timeout'))",
        )
        .await;
    assert_eq!(values, ["0,1ms,1ms,2ms,2ms"]);
    session
        .run(
            "SELECT set_config('advisory.a', 'a', true), set_config('advisory.b', current_setting('advisory.a') || 'b', true), \
             set_config('advisory.a', current_setting('advisory.b') || 'c', true); BEGIN",
        )
        .await;
    assert_eq!(session.run("SHOW advisory.a").await, ["abc"]);
}

#[tokio::test]
async fn a_cancelled_statement_says_the_same_whoever_asked() {
    let (db, [session]) = sessions().await;
    let words = |error: tokio_postgres::Error| error.as_db_error().unwrap().message().to_owned();
    let own = "SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(60)";
    let own = words(session.send(own).await.unwrap_err());
    let pid = session.run("SELECT pg_backend_pid()").await.remove(0);
    let sleeping = spawn(async move { session.send("SELECT pg_sleep(61)").await.unwrap_err() });
    db.until_active("SELECT pg_sleep(61)").await;
    db.run(&format!("SELECT pg_cancel_backend({pid})")).await;
    assert_eq!(words(sleeping.await.unwrap()), own);
}

#[tokio::test]
async fn a_time_out_is_whole_milliseconds_and_its_text_is_an_interval() {
    let (_db, [session]) = sessions().await;
    session.run("SET lock_timeout = '0.4ms'").await;
    assert_eq!(session.run("SHOW lock_timeout").await, ["0"]);
    for refused in ["-1", "2147483648"] {
        let set = format!("SELECT set_config('lock_timeout', '{refused}', true)");
        assert_eq!(session.refused(&set).await, "22023");
    }
    session
        .run("SELECT set_config('lock_timeout', '2147483647', true)")
        .await;
    for (set, interval) in [
        ("1", "1 ms"),
        ("1500", "1.5 s"),
        ("90min", "90 min"),
        ("0", "0"),
        ("2147483647", "2147483647 ms"),
    ] {
        let same = format!(
            "SET lock_timeout = '{set}'; SELECT current_setting('lock_timeout')::interval = '{interval}'::interval"
        );
        assert_eq!(session.run(&same).await, ["t"], "{set}");
    }
    let setting =
        "SET lock_timeout = '7s'; SELECT setting FROM pg_settings WHERE name = 'lock_timeout'";
    assert_eq!(session.run(setting).await, ["7000"]);
}

#[tokio::test]
async fn the_servers_platform_tells_if_it_can_detect_dead_clients() {
    let (_db, [session]) = sessions().await;
    let interval = session.run("SHOW client_connection_check_interval").await;
    assert_eq!(interval, ["0"]);
    if session.run("SELECT strpos(version(), 'linux') > 0").await == ["t"] {
        session
            .run("SELECT set_config('client_connection_check_interval', '1000', true)")
            .await;
    }
}
