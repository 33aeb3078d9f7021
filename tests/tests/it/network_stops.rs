//! A network that drops every packet from a point of a call on: the call returns within seconds of
//! its `wait` or `max_hold`, with the error that is true at that point.

use crate::calls::assert_closed;
use advisory_runtime::{Error, Isolation, Request, Wait, session, xact};
use advisory_tests::bookings::{committed, database, insert};
use advisory_tests::{Database, Proxy, assert_error};
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod,
};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
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
    let mut config = ManagerConfig::default();
    // The pool itself asks the server nothing.
    config.recycling_method = RecyclingMethod::Fast;
    let manager =
        AsyncDieselConnectionManager::<AsyncPgConnection>::new_with_config(proxy.url(), config);
    let pool = Pool::builder(manager).max_size(1).build().unwrap();
    drop(pool.get().await.unwrap());
    proxy.stop_forwarding();
    let request = Request::new(7).wait(BRIEF);
    let called = timeout(IN_TIME, session::acquire_from(&pool, request)).await;
    assert_error!(called.expect("it returns"), TimedOut);
    proxy.resume_forwarding();
    db.until_quiet().await;
}
