//! A future dropped at any point, or a panic, leaves no lock, no waiter, no open transaction and no bad connection in a pool.

use crate::bookings::{book, committed, database, execute, insert, key_of};
use advisory_runtime::{Connection, Error, advisory_lock, xact};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use tokio::sync::oneshot;

/// What the body does when the future is dropped, or instead.
enum Body<'a> {
    Idle(oneshot::Sender<()>),
    Runs(&'a str),
    Waits,
    Panics,
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "xact")]
async fn work<C: Connection>(conn: &mut C, room: i64, body: Body<'_>) -> QueryResult<()> {
    insert(conn.pg(), room, "half done").await?;
    match body {
        Body::Idle(reached) => {
            let _: Result<(), ()> = reached.send(());
            pending().await
        }
        Body::Runs(sql) => execute(conn.pg(), sql).await.map(drop),
        Body::Waits => book(conn.pg(), 99, "nested").await.map(drop),
        Body::Panics => panic!("the body's own panic"),
    }
}

/// A pool of one connection: what it hands out next has to be good.
enum Pool {
    Bb8(diesel_async::pooled_connection::bb8::Pool<AsyncPgConnection>),
    Deadpool(diesel_async::pooled_connection::deadpool::Pool<AsyncPgConnection>),
}

async fn pools(db: &Database) -> [Pool; 2] {
    [Pool::Bb8(db.bb8(1).await), Pool::Deadpool(db.deadpool(1))]
}

impl Pool {
    async fn work(&self, room: i64, body: Body<'_>) -> QueryResult<()> {
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

    /// The pool's connection works and what it commits is committed.
    async fn works(&self, db: &Database, room: i64) {
        assert!(self.book(room).await.unwrap());
        assert_eq!(committed(db, room).await, 1);
        db.run(&format!("DELETE FROM booking WHERE room = {room}"))
            .await;
    }
}

/// Drives the future until the state is reached, then drops it.
async fn dropped<T>(future: impl Future<Output = T>, reached: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        _ = future => panic!("the future was to be dropped, and it finished"),
        () = reached => {}
    }
}

#[tokio::test]
async fn dropped_waiter_leaves_no_waiting_backend_and_the_pool_works_at_once() {
    let db = database().await;
    let mut holder = db.connect().await;
    for pool in pools(&db).await {
        let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
        dropped(pool.book(7), db.until_waiting(key_of(7))).await;
        db.until_no_waiters(key_of(7)).await;
        pool.works(&db, 8).await;
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
        db.until_quiet().await;
        assert_eq!(committed(&db, 7).await, 0);
    }
}

#[tokio::test]
async fn dropped_in_the_body_rolls_back_and_frees_the_lock() {
    let db = database().await;
    for pool in pools(&db).await {
        let (reach, reached) = oneshot::channel();
        dropped(pool.work(7, Body::Idle(reach)), async {
            reached.await.unwrap();
        })
        .await;
        db.until_quiet().await;
        pool.works(&db, 8).await;
        assert_eq!(committed(&db, 7).await, 0);
    }
}

#[tokio::test]
async fn dropped_in_a_running_query_cancels_it() {
    let db = database().await;
    for pool in pools(&db).await {
        let sleeping = async { db.until_active("SELECT pg_sleep(600)").await };
        dropped(pool.work(7, Body::Runs("SELECT pg_sleep(600)")), sleeping).await;
        db.until_quiet().await;
        pool.works(&db, 8).await;
        assert_eq!(committed(&db, 7).await, 0);
    }
}

#[tokio::test]
async fn dropped_while_a_nested_call_waits_frees_both() {
    let db = database().await;
    let mut holder = db.connect().await;
    for pool in pools(&db).await {
        let held = xact::begin(&mut holder, key_of(99)).await.unwrap();
        dropped(pool.work(7, Body::Waits), db.until_waiting(key_of(99))).await;
        db.until_no_waiters(key_of(99)).await;
        pool.works(&db, 8).await;
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
        db.until_quiet().await;
        assert_eq!(committed(&db, 7).await, 0);
    }
}

#[tokio::test]
async fn a_panic_in_the_body_rolls_back_and_frees_the_lock() {
    let db = database().await;
    for pool in pools(&db).await {
        // Caught above the connection, so that it goes back to its pool while nothing unwinds any more.
        assert!(caught(pool.work(7, Body::Panics)).await.is_err());
        db.until_quiet().await;
        pool.works(&db, 8).await;
        assert_eq!(committed(&db, 7).await, 0);
    }
}

#[tokio::test]
async fn a_panic_caught_below_the_connection_leaves_a_connection_that_says_it_is_broken() {
    let db = database().await;
    let mut conn = db.connect().await;
    assert!(caught(work(&mut conn, 7, Body::Panics)).await.is_err());
    db.until_quiet().await;
    let error = book(&mut conn, 7, "Ada").await.unwrap_err();
    assert!(
        matches!(Error::find(&error), Some(Error::BrokenConnection { .. })),
        "{error:?}"
    );
    assert_eq!(committed(&db, 7).await, 0);
}

#[tokio::test]
async fn a_task_that_panics_or_is_aborted_leaves_nothing() {
    let db = database().await;
    let pool = db.deadpool(1);
    let panics = tokio::spawn({
        let pool = pool.clone();
        async move { work(&mut pool.get().await.unwrap(), 7, Body::Panics).await }
    });
    assert!(panics.await.unwrap_err().is_panic());
    db.until_quiet().await;
    let (reach, reached) = oneshot::channel();
    let aborted = tokio::spawn({
        let pool = pool.clone();
        async move { work(&mut pool.get().await.unwrap(), 7, Body::Idle(reach)).await }
    });
    reached.await.unwrap();
    aborted.abort();
    assert!(aborted.await.unwrap_err().is_cancelled());
    db.until_quiet().await;
    Pool::Deadpool(pool).works(&db, 7).await;
}

#[tokio::test]
async fn dropped_after_any_poll_it_leaves_nothing() {
    let db = database().await;
    for pool in pools(&db).await {
        // The first connection of a pool takes many polls of its own.
        pool.works(&db, 8).await;
        for polls in 1.. {
            let finished = polled(pin!(pool.book(7)), polls).await;
            db.until_quiet().await;
            pool.works(&db, 8).await;
            if finished {
                assert!(
                    polls > 4,
                    "begin, count, insert and commit are polled at least once each"
                );
                break;
            }
            // A drop during the commit leaves the choice to the server, and a booking is made or it is not.
            db.run("DELETE FROM booking").await;
        }
        assert_eq!(committed(&db, 7).await, 1);
        db.run("DELETE FROM booking").await;
    }
}

/// A cancel request travels on a connection of its own, and can arrive when the next query runs.
#[tokio::test]
async fn a_dropped_future_closes_its_connection_so_that_no_later_query_is_cancelled_in_its_place() {
    let db = database().await;
    let mut holder = db.connect().await;
    for _ in 0..20 {
        let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
        let mut conn = db.connect().await;
        dropped(book(&mut conn, 7, "Ada"), db.until_waiting(key_of(7))).await;
        // Freed at once, so that the request finds the next query running if there is one.
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
        let error = execute(&mut conn, "SELECT pg_sleep(0.02)")
            .await
            .unwrap_err();
        assert!(is_closed(&error), "{error:?}");
    }
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}

fn is_closed(error: &DieselError) -> bool {
    matches!(
        error,
        DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand, _)
    )
}

#[tokio::test]
async fn a_dropped_nested_call_dooms_the_outer_one() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn outer(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        insert(conn, 1, "outer").await?;
        let (reach, reached) = oneshot::channel();
        dropped(work(conn, 7, Body::Idle(reach)), async {
            reached.await.unwrap();
        })
        .await;
        Ok(())
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let error = outer(&mut conn).await.unwrap_err();
    assert!(
        matches!(Error::find(&error), Some(Error::RolledBack { .. })),
        "{error:?}"
    );
    db.until_quiet().await;
    assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [0, 0]);
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
    working.shutdown_background();
    observing.block_on(async {
        db.until_no_waiters(key_of(7)).await;
        xact::finish(held, Ok::<_, Error>(())).await.unwrap();
        db.until_quiet().await;
        assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 0]);
    });
}

/// Polls the future at most so many times; whether it finished.
async fn polled<F: Future>(mut future: Pin<&mut F>, polls: usize) -> bool {
    let mut left = polls;
    poll_fn(|cx| {
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// The future's value, or that it panicked.
async fn caught<F: Future>(future: F) -> std::thread::Result<F::Output> {
    let mut future = Box::pin(future);
    let result = poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await;
    drop(future);
    result
}

#[tokio::test]
async fn dropped_in_the_commit_the_connection_says_that_it_is_broken() {
    let db = database().await;
    let mut conn = db.connect().await;
    let held = xact::begin(&mut conn, 1).await.unwrap();
    let finished = polled(pin!(xact::finish(held, Ok::<_, Error>(()))), 1).await;
    assert!(!finished);
    assert_broken(book(&mut conn, 7, "Ada").await);
    db.until_quiet().await;
}

#[tokio::test]
async fn a_connection_that_diesels_own_dropped_begin_left_is_refused() {
    let db = database().await;
    let mut conn = db.connect().await;
    {
        let transaction = pin!(conn.transaction::<(), DieselError, _>(async |_| Ok(())));
        assert!(!polled(transaction, 1).await);
    }
    assert_broken(book(&mut conn, 7, "Ada").await);
}

#[tokio::test]
async fn dropped_with_a_connection_that_the_function_took_from_a_pool() {
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

/// Where a session may not end itself, as after some a SET ROLE, it has to refuse what comes instead.
#[tokio::test]
async fn where_a_session_may_not_end_itself_nothing_more_is_committed_on_it() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn outer(conn: &mut AsyncPgConnection) -> QueryResult<()> {
        let (reach, reached) = oneshot::channel();
        dropped(work(conn, 7, Body::Idle(reach)), async {
            reached.await.unwrap();
        })
        .await;
        insert(conn, 1, "after the drop").await.unwrap_err();
        Ok(())
    }
    let db = database().await;
    let role = format!("app_{}", std::process::id());
    db.run("REVOKE EXECUTE ON FUNCTION pg_terminate_backend FROM PUBLIC")
        .await;
    db.run(&format!(
        "CREATE ROLE {role}; GRANT ALL ON booking TO {role}"
    ))
    .await;
    let mut conn = db.connect().await;
    execute(&mut conn, &format!("SET ROLE {role}"))
        .await
        .unwrap();
    let error = outer(&mut conn).await.unwrap_err();
    assert!(
        matches!(Error::find(&error), Some(Error::RolledBack { .. })),
        "{error:?}"
    );
    assert_eq!([committed(&db, 1).await, committed(&db, 7).await], [0, 0]);
    db.until_no_locks().await;
    drop(conn);
    db.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await;
}

fn assert_broken<T: std::fmt::Debug>(result: QueryResult<T>) {
    let error = result.unwrap_err();
    let found = Error::find(&error);
    assert!(
        matches!(found, Some(Error::BrokenConnection { .. })),
        "{error:?}"
    );
}

/// Where connections need TLS, or behind some firewalls, the request to cancel does not arrive.
#[tokio::test]
async fn where_no_cancel_request_arrives_the_call_returns_all_the_same() {
    #[advisory_lock(key = "outer", name = "outer", scope = "xact")]
    async fn outer(conn: &mut AsyncPgConnection, db: &Database) -> QueryResult<()> {
        dropped(book(conn, 7, "Ada"), db.until_waiting(key_of(7))).await;
        Ok(())
    }
    let db = database().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let proxy = advisory_tests::Proxy::start(&db).await;
    let mut conn = AsyncPgConnection::establish(proxy.url()).await.unwrap();
    proxy.refuse_connections().await;
    let error = outer(&mut conn, &db).await.unwrap_err();
    assert!(
        matches!(Error::find(&error), Some(Error::RolledBack { .. })),
        "{error:?}"
    );
    db.until_waiters(key_of(7), 1).await;
    // The server notices by itself that nobody is there any more.
    drop((conn, proxy));
    db.until_no_waiters(key_of(7)).await;
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 0);
}
