//! PostgreSQL's own behaviour with settings, on which the code relies: where they are read, and how
//! long they last.

use advisory_tests::Database;
use advisory_tests::futures::spawn;
use advisory_tests::postgres::Session;

#[tokio::test]
async fn a_custom_setting_is_null_before_and_empty_after_its_use() {
    let db = Database::create().await;
    let session = Session::open(&db).await;
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
    assert_eq!(
        session
            .refused("SELECT current_setting('advisory.other')")
            .await,
        "42704"
    );
}

#[tokio::test]
async fn a_local_setting_of_a_message_is_kept_by_the_begin_at_its_end() {
    let db = Database::create().await;
    let session = Session::open(&db).await;
    session
        .run("SELECT set_config('advisory.mark', '1', true), set_config('lock_timeout', '7', true); BEGIN")
        .await;
    assert_eq!(
        session.run("SELECT current_setting('advisory.mark')").await,
        ["1"]
    );
    assert_eq!(session.run("SHOW lock_timeout").await, ["7ms"]);
    session.run("COMMIT").await;
    assert_eq!(session.run("SHOW lock_timeout").await, ["0"]);
}

#[tokio::test]
async fn a_session_setting_is_kept_by_commit_and_undone_by_rollback() {
    let db = Database::create().await;
    let session = Session::open(&db).await;
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
    let db = Database::create().await;
    let session = Session::open(&db).await;
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
    let db = Database::create().await;
    let session = Session::open(&db).await;
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
    let db = Database::create().await;
    let session = Session::open(&db).await;
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
    let db = Database::create().await;
    let session = Session::open(&db).await;
    assert_eq!(
        session.run("SHOW client_connection_check_interval").await,
        ["0"]
    );
    if session.run("SELECT strpos(version(), 'linux') > 0").await == ["t"] {
        session
            .run("SELECT set_config('client_connection_check_interval', '1000', true)")
            .await;
    }
}
