//! The server has no room for another lock (53200): what is held is given up all the same.

use advisory_runtime::{Request, Wait, session};
use advisory_tests::{OwnServer, left_out, owns_server};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::pin::pin;
use std::task::{Context, Waker};
use tokio_postgres::NoTls;

/// Takes locks until there is no room.
const FILL: &str =
    "SELECT pg_advisory_lock(1000000 + number) FROM generate_series(1, 1000000) AS number";

const HELD: &str =
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid < 1000000 AND granted";

async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn held(client: &tokio_postgres::Client) -> i64 {
    client.query_one(HELD, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_dropped_with_its_lock_granted_gives_it_back_where_there_is_no_room() {
    if !owns_server() {
        return left_out("a full lock table", "the server is somebody's own");
    }
    let server = OwnServer::start().await;
    let url = server.url();
    let (filler, observer) = (client(url).await, client(url).await);
    let mut conn = AsyncPgConnection::establish(url).await.unwrap();
    for wait in [Wait::Session, Wait::Forever] {
        loop {
            let request = Request::new(7).wait(wait);
            let mut call = pin!(session::acquire(&mut conn, request));
            // Sent, and never heard of again; unless the answer comes within the poll.
            let mut context = Context::from_waker(Waker::noop());
            if call.as_mut().poll(&mut context).is_ready() {
                continue;
            }
            while held(&observer).await == 0 {
                tokio::task::yield_now().await;
            }
            filler.batch_execute(FILL).await.unwrap_err();
            assert_eq!(held(&observer).await, 1);
            break;
        }
        let started = std::time::Instant::now();
        while held(&observer).await > 0 {
            assert!(
                started.elapsed().as_secs() < 5,
                "the lock is left on the caller's connection"
            );
            tokio::task::yield_now().await;
        }
        filler
            .batch_execute("SELECT pg_advisory_unlock_all()")
            .await
            .unwrap();
        // The connection goes on.
        let held = session::acquire(&mut conn, 8).await.unwrap();
        session::release(held, Ok::<_, advisory_runtime::Error>(()))
            .await
            .unwrap();
    }
}
