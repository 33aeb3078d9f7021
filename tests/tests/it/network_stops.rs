//! A network that drops every packet from a point of a call on, of its session or of new connections
//! too, such as cancel requests: the call returns within seconds of its `wait` or `max_hold`, with
//! the error that is true at that point.

use crate::calls::{assert_closed, book};
use advisory_runtime::{Error, Isolation, Request, Wait, advisory_lock, session, xact};
use advisory_tests::bookings::{committed, database, execute, insert, key_of};
use advisory_tests::{Database, Proxy, assert_error};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::future::pending;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Four seconds for the answer and one for the session's end; the rest is for a busy machine.
const IN_TIME: Duration = Duration::from_secs(40);

const BRIEF: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Scope {
    Xact,
    Strict,
    Nested,
    Session,
}

const SCOPES: [Scope; 4] = [Scope::Xact, Scope::Strict, Scope::Nested, Scope::Session];

#[derive(Clone, Copy, Debug)]
enum Point {
    Before,
    Commit,
    Rollback,
}

static OUTER: AtomicI64 = AtomicI64::new(1_000);

/// Runs a call on this connection, with a row in its body, that ends as asked.
async fn call(
    conn: &mut AsyncPgConnection,
    proxy: &Proxy,
    scope: Scope,
    point: Point,
    request: Request,
) -> Result<(), Error> {
    if scope != Scope::Nested {
        return call_once(conn, proxy, scope, point, request).await;
    }
    let mut outer = xact::begin(conn, OUTER.fetch_add(1, Ordering::Relaxed)).await?;
    let inner = call_once(outer.conn(), proxy, Scope::Xact, point, request).await;
    outer.finish(inner).await
}

async fn call_once(
    conn: &mut AsyncPgConnection,
    proxy: &Proxy,
    scope: Scope,
    point: Point,
    request: Request,
) -> Result<(), Error> {
    if let Point::Before = point {
        proxy.stop_forwarding();
    }
    let mut held = match scope {
        Scope::Strict => xact::begin(conn, request.isolation(Isolation::Serializable)).await?,
        Scope::Session => session::acquire(conn, request).await?,
        Scope::Xact | Scope::Nested => xact::begin(conn, request).await?,
    };
    insert(held.conn(), 7, "Ada").await?;
    proxy.stop_forwarding();
    held.finish(match point {
        Point::Rollback => Err(Error::Database(diesel::result::Error::NotFound)),
        Point::Before | Point::Commit => Ok(()),
    })
    .await
}

fn is_true(scope: Scope, point: Point, error: &Error) -> bool {
    match (point, scope) {
        (Point::Before, _) => matches!(error, Error::TimedOut { source: None, .. }),
        (Point::Commit, Scope::Xact | Scope::Strict) => {
            matches!(error, Error::CommitUnknown { .. })
        }
        (Point::Commit, _) => matches!(error, Error::HoldExceeded { .. }),
        (Point::Rollback, _) => {
            matches!(error, Error::Database(diesel::result::Error::NotFound))
        }
    }
}

async fn stops(db: &Database, scope: Scope, point: Point, request: Request) {
    let what = format!("{scope:?}, {point:?}, {request:?}");
    let proxy = Proxy::start(db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let called = call(&mut conn, &proxy, scope, point, request);
    let called = timeout(IN_TIME, called).await;
    let error = called.expect(&what).expect_err(&what);
    assert!(is_true(scope, point, &error), "{what}: {error:?}");
    let refused = xact::begin(&mut conn, 1).await.map(drop);
    assert_error!(refused, BrokenConnection, "{what}");
    proxy.resume_forwarding();
    assert_closed(&mut conn, &what).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_returns_in_time_wherever_the_network_stops() {
    let db = database().await;
    let request = Request::new(7).wait(BRIEF).max_hold(BRIEF);
    for scope in SCOPES {
        // Together, since each waits for seconds. The keys differ, so that none waits for another.
        let never = Request::new(8).wait(Wait::Never);
        let polls = Request::new(9).wait(BRIEF).poll(Duration::from_millis(10));
        tokio::join!(
            stops(&db, scope, Point::Before, request.clone()),
            stops(&db, scope, Point::Before, never),
            stops(&db, scope, Point::Before, polls),
        );
        stops(&db, scope, Point::Commit, request.clone()).await;
        stops(&db, scope, Point::Rollback, request.clone()).await;
        db.until_quiet().await;
        if matches!(scope, Scope::Nested) {
            assert_eq!(committed(&db, 7).await, 0);
        }
        db.run("DELETE FROM booking").await;
    }
}

/// A rollback is bounded for a call that has only a `wait`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_returns_in_time_without_max_hold() {
    let db = database().await;
    let request = Request::new(7).wait(BRIEF);
    stops(&db, Scope::Xact, Point::Rollback, request).await;
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_call_returns_in_time_when_the_network_stops() {
    let db = database().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let proxy = Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let request = Request::new(7).wait(Duration::from_secs(5));
    let called = timeout(IN_TIME, xact::begin(&mut conn, request));
    let stop = async {
        db.until_waiting(7).await;
        proxy.stop_forwarding();
    };
    let (called, ()) = tokio::join!(called, stop);
    assert_error!(called.expect("it returns"), TimedOut { source: None, .. });
    proxy.resume_forwarding();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_on_a_pool_returns_in_time_when_the_network_stops() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    // The pool itself asks the server nothing.
    let pool = Database::unchecked_deadpool_at(proxy.url());
    drop(pool.get().await.unwrap());
    proxy.stop_forwarding();
    let request = Request::new(7).wait(BRIEF);
    let called = timeout(IN_TIME, session::acquire_from(&pool, request)).await;
    assert_error!(called.expect("it returns"), TimedOut);
    proxy.resume_forwarding();
    db.until_quiet().await;
}

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
    let request = Request::new(key_of(7))
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
