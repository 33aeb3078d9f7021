//! A commit that is cancelled: the server can answer with an error although it has committed the
//! transaction.

use advisory_runtime::{Error, advisory_lock, blocking};
use advisory_tests::{OwnServer, left_out, owns_server, pid_of};
use diesel::{Connection as _, PgConnection, sql_query};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

#[advisory_lock(key = "cancelled-commit:<id>", name = "cancelled-commit")]
async fn insert(conn: &mut AsyncPgConnection, id: i64) -> Result<(), Error> {
    let insert =
        sql_query("INSERT INTO booked VALUES ($1)").bind::<diesel::sql_types::BigInt, _>(id);
    insert.execute(conn).await?;
    Ok(())
}

#[advisory_lock(key = "cancelled-commit:<id>", name = "cancelled-commit")]
fn insert_blocking<C: blocking::Connection>(conn: &mut C, id: i64) -> Result<(), Error> {
    let insert =
        sql_query("INSERT INTO booked VALUES ($1)").bind::<diesel::sql_types::BigInt, _>(id);
    diesel::RunQueryDsl::execute(insert, conn)?;
    Ok(())
}

/// A server that takes a tenth of a second to commit, and then logs the duration.
async fn slow_server() -> OwnServer {
    let server = OwnServer::start().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    for set in [
        "CREATE TABLE booked (id int8)",
        "ALTER SYSTEM SET fsync = on",
        "ALTER SYSTEM SET commit_delay = 100000",
        "ALTER SYSTEM SET commit_siblings = 0",
        "ALTER SYSTEM SET log_duration = on",
        "SELECT pg_reload_conf()",
    ] {
        conn.batch_execute(set).await.unwrap();
    }
    server
}

/// Runs the call until a cancel request arrives after the row was committed. The request can also
/// arrive before the commit, or too late.
async fn cancelled_late(
    server: &OwnServer,
    pid: i32,
    mut call: impl AsyncFnMut(i64) -> Result<(), Error>,
) -> Error {
    let mut observer = AsyncPgConnection::establish(server.url()).await.unwrap();
    let cancel = format!(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = {pid} AND state = 'active' AND query LIKE '%COMMIT'"
    );
    let started = Instant::now();
    for id in 1.. {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "no commit was cancelled late"
        );
        let called = {
            let mut calling = std::pin::pin!(call(id));
            loop {
                tokio::select! {
                    called = &mut calling => break called,
                    sent = sql_query(&cancel).execute(&mut observer) => drop(sent.unwrap()),
                }
            }
        };
        let written = sql_query(format!("SELECT FROM booked WHERE id = {id}"));
        let is_committed = written.execute(&mut observer).await.unwrap() == 1;
        match called {
            Ok(()) => assert!(is_committed, "answered `Ok`"),
            Err(error) if is_committed => return error,
            Err(_) => {}
        }
    }
    unreachable!("there are more numbers than half a minute has commits")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_cancelled_while_logged_is_not_a_rollback() {
    if !owns_server() {
        return left_out("a late cancel request", "the server is somebody's own");
    }
    let server = slow_server().await;
    let mut conn = AsyncPgConnection::establish(server.url()).await.unwrap();
    let pid = pid_of(&mut conn).await;
    let error = cancelled_late(&server, pid, async |id| insert(&mut conn, id).await).await;
    assert!(matches!(error, Error::CommitUnknown { .. }), "{error:?}");
    insert(&mut conn, 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_on_a_blocking_connection() {
    if !owns_server() {
        return left_out("a late cancel request", "the server is somebody's own");
    }
    let server = slow_server().await;
    let mut conn = PgConnection::establish(server.url()).unwrap();
    let pid = diesel::select(diesel::dsl::sql::<diesel::sql_types::Integer>(
        "pg_backend_pid()",
    ));
    let pid: i32 = diesel::RunQueryDsl::get_result(pid, &mut conn).unwrap();
    let mut idle = Some(conn);
    let error = cancelled_late(&server, pid, async |id| {
        let mut conn = idle.take().unwrap();
        let (called, conn) = spawn_blocking(move || {
            let called = insert_blocking(&mut conn, id);
            (called, conn)
        })
        .await
        .unwrap();
        idle = Some(conn);
        called
    })
    .await;
    assert!(matches!(error, Error::CommitUnknown { .. }), "{error:?}");
}
