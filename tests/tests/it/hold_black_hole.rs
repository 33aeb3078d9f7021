//! `max_hold` while the network drops every packet: those of the session, and of new connections,
//! such as cancel requests.

use crate::calls::{assert_closed, book};
use advisory_runtime::{Error, Wait, advisory_lock, xact};
use advisory_tests::bookings::{committed, database, execute, key_of};
use advisory_tests::{Proxy, assert_error};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::future::pending;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// A third of a second, a tenth for the rollback, a second for the session's end; the rest is for a
/// busy machine.
const A_FEW_SECONDS: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, Debug)]
enum Body {
    Idles,
    Runs,
}

macro_rules! bounded {
    ($($name:ident: $key:literal, $first:literal $(, $more:ident = $value:literal)*;)*) => { $(
        #[advisory_lock(key = $key, max_hold = "300ms" $(, $more = $value)*)]
        async fn $name(
            conn: &mut AsyncPgConnection,
            proxy: &Proxy,
            room: i64,
            does: Body,
            swallowed: &mut Vec<TcpStream>,
        ) -> QueryResult<()> {
            execute(conn, $first).await?;
            swallowed.extend(proxy.swallow_everything().await);
            match does {
                Body::Idles => pending().await,
                Body::Runs => execute(conn, "SELECT 1").await.map(drop),
            }
        }
    )* };
}

bounded! {
    bounded: "room:<room>", "INSERT INTO booking VALUES (7, 'Ada')", name = "room";
    bounded_in_session: "session:<room>", "SELECT 7", scope = "session";
}

#[advisory_lock(key = "outer", name = "outer")]
async fn nested(
    conn: &mut AsyncPgConnection,
    proxy: &Proxy,
    room: i64,
    does: Body,
    swallowed: &mut Vec<TcpStream>,
) -> QueryResult<()> {
    bounded(conn, proxy, room, does, swallowed).await
}

#[derive(Clone, Copy, Debug)]
enum Site {
    Plain,
    Session,
    Nested,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_into_a_black_hole_returns_within_a_few_seconds() {
    let db = database().await;
    for site in [Site::Plain, Site::Session, Site::Nested] {
        for does in [Body::Idles, Body::Runs] {
            let proxy = Proxy::start(&db).await;
            let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
            let mut swallowed = Vec::new();
            let started = Instant::now();
            let end = match site {
                Site::Plain => bounded(&mut conn, &proxy, 7, does, &mut swallowed).await,
                Site::Session => {
                    bounded_in_session(&mut conn, &proxy, 7, does, &mut swallowed).await
                }
                Site::Nested => nested(&mut conn, &proxy, 7, does, &mut swallowed).await,
            };
            let elapsed = started.elapsed();
            assert!(elapsed < A_FEW_SECONDS, "{site:?} {does:?}: {elapsed:?}");
            assert_error!(end, HoldExceeded, "{site:?} {does:?}");
            // Every further call is refused without a packet.
            assert_error!(book(&mut conn, 7, "Ada").await, BrokenConnection);
            // The server learns of it when the packets arrive.
            proxy.resume_forwarding();
            db.until_quiet().await;
            assert_closed(&mut conn, "a black hole").await;
            assert_eq!(committed(&db, 7).await, 0);
        }
    }
}

/// The wait for the lock is not part of `max_hold`: `wait` bounds it, and the task that drops the
/// call is not delayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_dropped_into_a_black_hole_delays_nothing() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let (mut holder, mut conn) = (
        db.connect().await,
        AsyncPgConnection::establish(proxy.url()).await.unwrap(),
    );
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let (give_up, is_given_up) = oneshot::channel();
    let request = advisory_runtime::Request::new(key_of(7))
        .wait(Wait::Forever)
        .max_hold(Duration::from_millis(300));
    let waiting = async {
        tokio::select! {
            biased;
            begun = xact::begin(&mut conn, request) => panic!("it did not wait: {begun:?}"),
            _ = is_given_up => Instant::now(),
        }
    };
    let swallow = async {
        db.until_waiting(key_of(7)).await;
        let swallowed = proxy.swallow_everything().await;
        give_up.send(()).unwrap();
        swallowed
    };
    let (dropped_at, _swallowed) = tokio::join!(waiting, swallow);
    assert!(dropped_at.elapsed() < A_FEW_SECONDS);
    assert_error!(book(&mut conn, 7, "Ada").await, BrokenConnection);
    proxy.resume_forwarding();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}
