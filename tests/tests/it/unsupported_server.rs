//! `verify` refuses a server that grants one lock to two sessions, as databases do that only speak
//! PostgreSQL's protocol.

use advisory_runtime::{Error, blocking, session};
use advisory_tests::bookings::database;
use advisory_tests::futures::spawn_blocking;
use advisory_tests::{Database, Proxy, assert_error, pid_of};

/// In this database the functions for keys of these types grant everything and lock nothing.
async fn grant_all(db: &Database, types: &str) {
    for function in ["pg_try_advisory_lock", "pg_advisory_unlock"] {
        db.run(&format!(
            "ALTER FUNCTION pg_catalog.{function}({types}) RENAME TO {function}_of_postgresql; \
             CREATE FUNCTION pg_catalog.{function}({types}) RETURNS boolean LANGUAGE sql AS 'SELECT true'"
        ))
        .await;
    }
}

async fn verify_blocking(db: &Database) -> Result<(), Error> {
    let pool = db.r2d2(2);
    let verified = spawn_blocking(move || blocking::session::verify(&pool));
    verified.await.unwrap()
}

/// The functions of <https://github.com/cockroachdb/cockroach/issues/13546>, and a preview of
/// another engine: <https://github.com/yugabyte/yugabyte-db/issues/25756>.
#[tokio::test]
async fn functions_that_lock_nothing_are_refused() {
    for types in ["bigint", "int, int"] {
        let db = database().await;
        grant_all(&db, types).await;
        let pool = db.deadpool(2);
        assert_error!(session::verify(&pool).await, UnsupportedServer, "{types}");
        assert_error!(verify_blocking(&db).await, UnsupportedServer, "{types}");
        db.until_no_locks().await;
    }
}

/// The first session only says that it has the lock, and the second one gets it.
#[tokio::test]
async fn a_lock_that_the_second_session_got_is_released() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let pool = Database::deadpool_at(proxy.url(), 2);
    proxy.replace("NOT pg_catalog.pg_try_advisory_lock", "SELECT 1");
    assert_error!(session::verify(&pool).await, UnsupportedServer);
    assert_eq!(db.locks().await, []);
}

/// Any other error says nothing about the server, and costs the pool no connection as long as no
/// lock was tried.
#[tokio::test]
async fn a_statement_that_fails_is_reported_as_it_is() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let pool = Database::deadpool_at(proxy.url(), 2);
    let pids = async || {
        let (mut one, mut other) = (pool.get().await.unwrap(), pool.get().await.unwrap());
        [pid_of(&mut one).await, pid_of(&mut other).await]
    };
    let mut before = pids().await;
    for (text, are_kept) in [("pg_is_in_recovery", true), ("pg_try_advisory_lock", false)] {
        proxy.replace(text, "SELECT no_such_column");
        assert_error!(session::verify(&pool).await, Database, "{text}");
        let after = pids().await;
        let is_as_told = |pid| before.contains(pid) == are_kept;
        assert!(after.iter().all(is_as_told), "{text}");
        before = after;
    }
    // Sessions that are shared may hold what was taken.
    proxy.replace(
        "WHEN NOT pg_catalog.pg_backend_pid",
        "SELECT CAST('advisory:pooled-session' AS int4)",
    );
    assert_error!(session::verify(&pool).await, PooledSession);
    assert!(pids().await.iter().all(|pid| !before.contains(pid)));
}

/// A node of a Citus cluster, by the catalog of that extension.
async fn node(group: i32) -> Database {
    let db = database().await;
    db.run(&format!(
        "SET allow_system_table_mods = on; CREATE TABLE pg_catalog.pg_dist_local_group (groupid int NOT NULL); \
         INSERT INTO pg_catalog.pg_dist_local_group VALUES ({group})"
    ))
    .await;
    db
}

/// Its locks exclude its own sessions, so only the number of its group shows it.
#[tokio::test]
async fn a_worker_node_of_citus_is_refused() {
    let db = node(1).await;
    assert_error!(session::verify(&db.deadpool(2)).await, NotCoordinator);
    assert_error!(verify_blocking(&db).await, NotCoordinator);
    db.until_no_locks().await;
}

#[tokio::test]
async fn the_coordinator_of_citus_is_verified() {
    let db = node(0).await;
    session::verify(&db.deadpool(2)).await.unwrap();
}
