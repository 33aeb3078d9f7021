//! The server has no room for another lock (53200): held locks are still released.

use advisory_runtime::{Request, Wait, session};
use advisory_tests::futures::spawn;
use advisory_tests::pauses::pause;
use advisory_tests::{OwnServer, assert_error, left_out, owns_server};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::pin::pin;
use std::time::Instant;
use tokio_postgres::NoTls;

const FILL: &str =
    "SELECT pg_advisory_lock(1000000 + number) FROM generate_series(1, 1000000) AS number";

const HELD: &str =
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid < 1000000 AND granted";

const WAITS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";

async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    spawn(connection);
    client
}

/// Polls until the query counts this many.
///
/// # Panics
///
/// If it does not within a minute.
async fn until(client: &tokio_postgres::Client, query: &str, count: i64) {
    let started = Instant::now();
    loop {
        let counted: i64 = client.query_one(query, &[]).await.unwrap().get(0);
        if counted == count {
            return;
        }
        assert!(started.elapsed().as_secs() < 60, "{query}: {counted}");
        pause().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_dropped_after_its_grant_releases_in_a_full_table() {
    if !owns_server() {
        return left_out("a full lock table", "the server is somebody's own");
    }
    let server = OwnServer::start().await;
    let url = server.url();
    let (filler, observer) = (client(url).await, client(url).await);
    for wait in [Wait::Session, Wait::Forever] {
        let mut conn = AsyncPgConnection::establish(url).await.unwrap();
        filler
            .batch_execute("SELECT pg_advisory_lock(7)")
            .await
            .unwrap();
        {
            let mut call = pin!(session::acquire(&mut conn, Request::new(7).wait(wait)));
            tokio::select! {
                biased;
                _ = &mut call => panic!("it did not wait"),
                () = until(&observer, WAITS, 1) => {}
            }
            // From now on the answer is not read.
            filler
                .batch_execute("SELECT pg_advisory_unlock(7)")
                .await
                .unwrap();
            until(&observer, WAITS, 0).await;
            filler.batch_execute(FILL).await.unwrap_err();
            until(&observer, HELD, 1).await;
        }
        until(&observer, HELD, 0).await;
        assert_error!(session::acquire(&mut conn, 8).await, BrokenConnection);
        filler
            .batch_execute("SELECT pg_advisory_unlock_all()")
            .await
            .unwrap();
    }
}
