//! Locks in the server's log: their names when a call waits for long, and no errors of the
//! library's own statements.

use advisory_runtime::{Error, advisory_lock, blocking, session, xact};
use advisory_tests::bookings::{execute, run};
use advisory_tests::futures::{dropped, spawn_blocking};
use advisory_tests::pauses::pause;
use advisory_tests::written_migrations::Written;
use advisory_tests::{Database, OwnServer, left_out, owns_server};
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use std::time::{Duration, Instant};

/// Waits for a line of the server's log that contains both texts, with the lines that belong to it.
async fn until_logged(server: &OwnServer, first: &str, second: &str) {
    let started = Instant::now();
    loop {
        let log = server.log();
        let mut parts = log.split(first).skip(1);
        if parts.any(|part| part.lines().take(8).any(|line| line.contains(second))) {
            return;
        }
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "no {first} and {second} in:\n{log}"
        );
        pause().await;
    }
}

#[advisory_lock(key = "log-a:<id>")]
async fn lock_a(conn: &mut AsyncPgConnection, id: i64) -> Result<(), Error> {
    _ = (conn, id);
    Ok(())
}

#[advisory_lock(key = "log-b:<id>")]
async fn lock_b(conn: &mut AsyncPgConnection, id: i64) -> Result<(), Error> {
    _ = (conn, id);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_log_names_locks_of_long_waits_and_deadlocks() {
    if !owns_server() {
        return left_out("the server's log", "the server is somebody's own");
    }
    let server = OwnServer::start().await;
    let mut first = AsyncPgConnection::establish(server.url()).await.unwrap();
    for set in [
        "ALTER SYSTEM SET log_lock_waits = on",
        "ALTER SYSTEM SET deadlock_timeout = '100ms'",
        "SELECT pg_reload_conf()",
    ] {
        first.batch_execute(set).await.unwrap();
    }
    let mut first = AsyncPgConnection::establish(server.url()).await.unwrap();
    let mut second = AsyncPgConnection::establish(server.url()).await.unwrap();
    let keys = [
        advisory_pattern::Derivation::Sha256.key("log-a:1"),
        advisory_pattern::Derivation::Sha256.key("log-b:1"),
    ];
    // Each holds one lock, by number, and requests the other's.
    let mut a = xact::begin(&mut first, keys[0]).await.unwrap();
    let mut b = xact::begin(&mut second, keys[1]).await.unwrap();
    let waits = async {
        let end = lock_b(a.conn(), 1).await;
        a.finish(end).await
    };
    let meets = async {
        until_logged(
            &server,
            "still waiting for ExclusiveLock",
            "/*advisory:log-b:<id>*/",
        )
        .await;
        let end = lock_a(b.conn(), 1).await;
        b.finish(end).await
    };
    let (waited, met) = tokio::join!(waits, meets);
    let is_victim = |end: &Result<(), Error>| matches!(end, Err(Error::Deadlock { .. }));
    assert!(is_victim(&waited) != is_victim(&met), "{waited:?} {met:?}");
    for pattern in ["/*advisory:log-a:<id>*/", "/*advisory:log-b:<id>*/"] {
        until_logged(&server, "deadlock detected", pattern).await;
    }
    // A second one waits long enough too.
    let held = xact::begin(&mut first, keys[0]).await.unwrap();
    let seen = until_logged(
        &server,
        "still waiting for ExclusiveLock",
        "/*advisory:log-a:<id>*/",
    );
    dropped(lock_a(&mut second, 1), seen).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

/// Their queries are answered without an error, so an operator finds nothing unexpected in the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_and_a_blocking_run_write_nothing_into_the_servers_log() {
    if !owns_server() {
        return left_out("the server's log", "the server is somebody's own");
    }
    let server = OwnServer::start().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    for set in [
        "ALTER SYSTEM SET log_min_messages = warning",
        "SELECT pg_reload_conf()",
    ] {
        run(&mut conn, set).await;
    }
    let complaints = || {
        let levels = ["WARNING", "ERROR", "FATAL", "PANIC"];
        let log = server.log();
        let complaints = log
            .lines()
            .filter(|line| levels.iter().any(|level| line.contains(level)));
        complaints.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = complaints();
    let pool = Database::deadpool_at(server.url(), 2);
    session::verify(&pool).await.unwrap();
    let url = server.url().to_owned();
    let ran = spawn_blocking(move || {
        blocking::session::verify(&Database::r2d2_at(&url, 2)).unwrap();
        [(); 2].map(|()| {
            let source = Written(vec![("1", "CREATE TABLE a (id int8)")]);
            blocking::migrations::run(&url, source).unwrap().applied
        })
    });
    assert_eq!(ran.await.unwrap(), [vec!["1".to_owned()], vec![]]);
    assert_eq!(complaints(), before);
    // An error would be visible here.
    execute(&mut conn, "SELECT 1/0").await.unwrap_err();
    assert_eq!(complaints().len(), before.len() + 1);
}
