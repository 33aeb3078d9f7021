//! A commit that is cancelled: the server can answer with an error although it has committed the
//! transaction.

use super::super::{Conn, begin, end, establish, execute, pid_of, spawn};
use advisory_runtime::Error;
use advisory_tests::{OwnServer, assert_error, left_out, owns_server};
use diesel::sql_query;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use std::time::{Duration, Instant};

async fn insert(conn: &mut Conn, id: i64) -> Result<(), Error> {
    let mut held = begin(conn, id).await?;
    let inserted = execute(held.conn(), &format!("INSERT INTO booked VALUES ({id})")).await;
    end(held, inserted.map(drop).map_err(Error::Database)).await
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
    let mut conn = establish(server.url()).await;
    let pid = pid_of(&mut conn).await;
    let mut idle = Some(conn);
    let error = cancelled_late(&server, pid, async |id| {
        let mut conn = idle.take().unwrap();
        let called = spawn(async move { (insert(&mut conn, id).await, conn) });
        let (called, conn) = called.await.unwrap();
        idle = Some(conn);
        called
    })
    .await;
    assert_error!(error, CommitUnknown);
    insert(&mut idle.unwrap(), 0).await.unwrap();
}
