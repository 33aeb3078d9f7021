//! A future dropped at any point, or a panic, leaves no lock, no waiter, no open transaction and no
//! bad connection in a pool.

use crate::calls::{Body, book, work};
use advisory_runtime::{Error, Request, advisory_lock, session, xact};
use advisory_tests::bookings::{committed, database, execute, insert, key_of};
use advisory_tests::futures::{caught, dropped};
use advisory_tests::pauses::pause;
use advisory_tests::{Database, Proxy};
use diesel::QueryResult;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::future::pending;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A pool of one connection, so the next one that it hands out shows whether the connection is
/// good.
enum Pool {
    Bb8(diesel_async::pooled_connection::bb8::Pool<AsyncPgConnection>),
    Deadpool(diesel_async::pooled_connection::deadpool::Pool<AsyncPgConnection>),
}

async fn pools(db: &Database) -> [Pool; 2] {
    [Pool::Bb8(db.bb8(1).await), Pool::Deadpool(db.deadpool(1))]
}

impl Pool {
    async fn work(&self, room: i64, body: Body) -> QueryResult<()> {
        match self {
            Self::Bb8(pool) => work(&mut pool.get().await.unwrap(), room, body).await,
            Self::Deadpool(pool) => work(&mut pool.get().await.unwrap(), room, body).await,
        }
    }

    async fn book(&self, room: i64) -> QueryResult<bool> {
        match self {
            Self::Bb8(pool) => book(&mut pool.get().await.unwrap(), room, "Grace").await,
            Self::Deadpool(pool) => book(&mut pool.get().await.unwrap(), room, "Grace").await,
        }
    }

    /// The pool's connection works, and its commits are durable.
    async fn works(&self, db: &Database, room: i64) {
        assert!(self.book(room).await.unwrap());
        assert_eq!(committed(db, room).await, 1);
        db.run(&format!("DELETE FROM booking WHERE room = {room}"))
            .await;
    }
}

#[tokio::test]
async fn a_dropped_waiter_leaves_no_backend_also_in_a_nested_call() {
    let db = database().await;
    let mut holder = db.connect().await;
    for pool in pools(&db).await {
        let held = xact::begin(&mut holder, Request::all([key_of(7), key_of(99)])).await;
        dropped(pool.book(7), db.until_waiting(key_of(7))).await;
        db.until_no_waiters(key_of(7)).await;
        pool.works(&db, 8).await;
        dropped(pool.work(6, Body::Waits), db.until_waiting(key_of(99))).await;
        db.until_no_waiters(key_of(99)).await;
        pool.works(&db, 8).await;
        held.unwrap().finish(Ok::<_, Error>(())).await.unwrap();
        db.until_quiet().await;
        assert_eq!([committed(&db, 7).await, committed(&db, 6).await], [0, 0]);
    }
}

#[tokio::test]
async fn a_drop_or_a_panic_in_the_body_rolls_back_and_frees_the_lock() {
    let db = database().await;
    for pool in pools(&db).await {
        let (reach, reached) = oneshot::channel();
        dropped(pool.work(7, Body::Idle(reach)), async {
            reached.await.unwrap();
        })
        .await;
        db.until_quiet().await;
        pool.works(&db, 8).await;
        // Caught above the connection, so that it returns to its pool after the unwinding.
        assert!(caught(pool.work(7, Body::Panics)).await.is_err());
        db.until_quiet().await;
        pool.works(&db, 8).await;
        assert_eq!(committed(&db, 7).await, 0);
    }
}

#[test]
fn a_runtime_that_shuts_down_leaves_nothing() {
    let observing = tokio::runtime::Runtime::new().unwrap();
    let (db, mut conn) = observing.block_on(async {
        let db = database().await;
        let conn = db.connect().await;
        (db, conn)
    });
    let held = observing
        .block_on(xact::begin(&mut conn, key_of(7)))
        .unwrap();
    let working = tokio::runtime::Runtime::new().unwrap();
    let url = db.url().to_owned();
    let (reach, reached) = oneshot::channel();
    working.spawn(async move {
        let mut conn = AsyncPgConnection::establish(&url).await.unwrap();
        work(&mut conn, 8, Body::Idle(reach)).await
    });
    let url = db.url().to_owned();
    working.spawn(async move {
        let mut conn = AsyncPgConnection::establish(&url).await.unwrap();
        book(&mut conn, 7, "Ada").await
    });
    observing.block_on(async {
        reached.await.unwrap();
        db.until_waiting(key_of(7)).await;
    });
    let url = db.url().to_owned();
    working.spawn(async move {
        let mut conn = AsyncPgConnection::establish(&url).await.unwrap();
        let mut held = session::acquire(&mut conn, 9).await.unwrap();
        execute(held.conn(), "SELECT pg_sleep(600)").await
    });
    observing.block_on(db.until_active("SELECT pg_sleep(600)"));
    working.shutdown_background();
    observing.block_on(async {
        db.until_no_waiters(key_of(7)).await;
        held.finish(Ok::<_, Error>(())).await.unwrap();
        db.until_quiet().await;
        assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 0]);
    });
}

#[tokio::test]
async fn a_drop_closes_a_connection_that_the_function_took_from_a_pool() {
    struct Repository(diesel_async::pooled_connection::deadpool::Pool<AsyncPgConnection>);
    impl Repository {
        #[advisory_lock(key = "room:<room>", name = "room", conn = self.0.get().await?)]
        async fn work(&self, room: i64, reach: oneshot::Sender<()>) -> anyhow::Result<()> {
            insert(conn, room, "half done").await?;
            reach.send(()).unwrap();
            pending().await
        }
    }
    let db = database().await;
    let repository = Repository(db.deadpool(1));
    let (reach, reached) = oneshot::channel();
    dropped(repository.work(7, reach), async { reached.await.unwrap() }).await;
    db.until_quiet().await;
    Pool::Deadpool(repository.0).works(&db, 7).await;
}

/// A request that the server serves before it has the call's message cancels nothing, so requests
/// are repeated.
#[tokio::test(flavor = "multi_thread")]
async fn cancel_requests_do_not_come_all_at_once() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, 7).await.unwrap();
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    let mut before = None;
    let waiting = async {
        db.until_waiting(7).await;
        before = Some(Instant::now());
    };
    dropped(xact::begin(&mut conn, 7), waiting).await;
    while proxy.cancel_requests() < 3 {
        pause().await;
    }
    let spread = before.unwrap().elapsed();
    assert!(spread >= Duration::from_millis(200), "{spread:?}");
    held.finish(Ok::<_, Error>(())).await.unwrap();
}
