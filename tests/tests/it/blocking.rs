//! Blocking Diesel: the locked functions that its tests use, and what only it promises. `both.rs`
//! has what both drivers promise.

use crate::calls::book_blocking as book;
use advisory_runtime::blocking::{Connection, xact};
use advisory_runtime::{Error, PoolError, Request, Wait, advisory_lock, testing};
use advisory_tests::blocking::{book_unlocked, execute, finish, held_by, insert, pid_of};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::futures::{spawn, spawn_blocking};
use advisory_tests::{Proxy, assert_error, assert_matches};
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::{Connection as _, PgConnection, QueryResult};
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Both kinds of Diesel lock the same number.
#[tokio::test(flavor = "multi_thread")]
async fn async_and_blocking_functions_wait_for_each_other() {
    let db = database().await;
    let (mut blocking, mut other) = (db.establish(), db.connect().await);
    let mut held = xact::begin(&mut blocking, key_of(7)).unwrap();
    insert(held.conn(), 7, "Ada").unwrap();
    let waiting = spawn(async move {
        let booked = crate::calls::book(&mut other, 7, "Grace").await;
        (booked, other)
    });
    db.until_waiting(key_of(7)).await;
    finish(held);
    let (booked, mut other) = waiting.await.unwrap();
    assert!(!booked.unwrap());

    let mut held = advisory_runtime::xact::begin(&mut other, key_of(8))
        .await
        .unwrap();
    advisory_tests::bookings::insert(held.conn(), 8, "Ada")
        .await
        .unwrap();
    let waiting = spawn_blocking(move || book(&mut blocking, 8, "Grace"));
    db.until_waiting(key_of(8)).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert!(!waiting.await.unwrap().unwrap());
}

struct Repository {
    pool: Pool<ConnectionManager<PgConnection>>,
    conn: PgConnection,
}

impl Repository {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.conn)]
    fn of_a_field(&mut self, room: i64) -> QueryResult<bool> {
        book_unlocked(&mut self.conn, room, "Ada")
    }

    #[advisory_lock(key = "room:<room>", name = "room", conn = self.pool.get()?)]
    fn of_a_pool(&self, room: i64) -> anyhow::Result<bool> {
        Ok(book_unlocked(conn, room, "Ada")?)
    }
}

#[advisory_lock(key = "room:<room>", name = "room")]
fn generic<C: Connection>(conn: &mut C, room: i64) -> QueryResult<i64> {
    insert(conn.pg(), room, "Ada")?;
    held_by(conn.pg())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_connection_holds_the_lock_and_commits() {
    let db = database().await;
    let (pool, conn) = (db.r2d2(1), db.establish());
    let mut repository = Repository { pool, conn };
    assert!(repository.of_a_field(1).unwrap());
    assert!(!repository.of_a_field(1).unwrap());
    assert!(repository.of_a_pool(2).unwrap());
    assert!(!repository.of_a_pool(2).unwrap());
    assert_eq!(generic(&mut repository.conn, 3).unwrap(), 1);
    assert_eq!(generic(&mut repository.pool.get().unwrap(), 4).unwrap(), 1);
    for room in 1..=4 {
        assert_eq!(committed(&db, room).await, 1, "{room}");
    }
    db.until_quiet().await;
}

/// The body's result can borrow from its arguments, and the body can return early with `?`.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_returns_what_it_has_borrowed() {
    #[advisory_lock(key = "room:<room>", name = "room")]
    fn pick<'n>(
        conn: &mut PgConnection,
        room: i64,
        names: &'n mut [String],
    ) -> QueryResult<&'n mut String> {
        insert(conn, room, &names[0])?;
        names.first_mut().ok_or(diesel::result::Error::NotFound)
    }
    let db = database().await;
    let mut names = vec!["Ada".to_owned()];
    let name = pick(&mut db.establish(), 7, &mut names).unwrap();
    name.push('!');
    assert_eq!(names, ["Ada!"]);
    assert_eq!(committed(&db, 7).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn begin_and_commit_are_one_round_trip_each_and_a_try_is_two() {
    let db = database().await;
    let proxy = Proxy::start(&db).await;
    let mut conn = PgConnection::establish(proxy.url()).unwrap();
    proxy.reset();
    let held = xact::begin(&mut conn, 7).unwrap();
    assert_eq!(proxy.round_trips(), 1, "{:#?}", proxy.queries());
    finish(held);
    assert_eq!(proxy.round_trips(), 2, "{:#?}", proxy.queries());
    proxy.reset();
    let held = xact::begin(&mut conn, Request::new(7).wait(Wait::Never)).unwrap();
    assert_eq!(proxy.round_trips(), 2, "{:#?}", proxy.queries());
    finish(held);
}

type Conn<'a> = &'a mut PgConnection;

struct Booking<'a> {
    db: Conn<'a>,
    room: i64,
}

#[advisory_lock(key = "room:<room>", name = "room")]
fn by_an_alias(conn: Conn<'_>, room: i64) -> QueryResult<i64> {
    insert(conn, room, "Ada")?;
    held_by(conn)
}

#[advisory_lock(key = "spelled:<booking.room>", conn = booking.db)]
fn by_a_field(booking: &mut Booking<'_>) -> QueryResult<i64> {
    insert(booking.db, booking.room, "Ada")?;
    held_by(booking.db)
}

#[advisory_lock(key = "room:<room>", name = "room", conn = std::convert::identity(&mut *booking.db))]
fn by_an_expression(booking: &mut Booking<'_>, room: i64) -> QueryResult<i64> {
    insert(conn, room, "Ada")?;
    held_by(conn)
}

macro_rules! spelled {
    ($name:ident, $conn:ident: $ty:ty) => {
        #[advisory_lock(key = "room:<room>", name = "room")]
        fn $name($conn: $ty, room: i64) -> QueryResult<i64> {
            insert($conn, room, "Ada")?;
            held_by($conn)
        }
    };
}
spelled!(by_a_macro, conn: &mut PgConnection);

#[tokio::test(flavor = "multi_thread")]
async fn a_reference_to_a_connection_is_locked_however_it_is_spelled() {
    let db = database().await;
    let conn = &mut db.establish();
    assert_eq!(by_an_alias(conn, 7).unwrap(), 1);
    assert_eq!(by_a_macro(conn, 7).unwrap(), 1);
    let mut booking = Booking { db: conn, room: 7 };
    assert_eq!(by_a_field(&mut booking).unwrap(), 1);
    assert_eq!(by_an_expression(&mut booking, 7).unwrap(), 1);
    assert_eq!(held_by(conn).unwrap(), 0);
    assert_eq!(committed(&db, 7).await, 4);
}

/// Blocking Diesel can roll back in a drop, so the connection is not closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_guard_rolls_back_and_keeps_its_connection() {
    let db = database().await;
    let mut conn = db.establish();
    let pid = pid_of(&mut conn);
    let mut held = xact::begin(&mut conn, key_of(3)).unwrap();
    insert(held.conn(), 3, "Ada").unwrap();
    drop(held);
    assert_eq!(db.locks().await, []);
    assert_eq!(committed(&db, 3).await, 0);
    assert!(book(&mut conn, 3, "Grace").unwrap());
    assert_eq!(pid_of(&mut conn), pid);
}

/// Diesel's own connection notices a manual `COMMIT`, so the call begins its own transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_after_a_commit_by_hand_is_its_own_transaction() {
    let db = database().await;
    let mut conn = db.establish();
    let result = conn.transaction::<(), diesel::result::Error, _>(|conn| {
        execute(conn, "COMMIT")?;
        assert!(book(conn, 7, "Ada")?);
        assert_eq!(held_by(conn)?, 0);
        Ok(())
    });
    assert_matches!(result, Err(diesel::result::Error::NotInTransaction));
    assert_eq!(committed(&db, 7).await, 1);
}

/// Diesel knows of the loss. Nothing is committed before the outer transaction ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_under_a_savepoint_is_no_unknown_commit() {
    let db = database().await;
    let mut conn = db.establish();
    let mut outer = xact::begin(&mut conn, 8).unwrap();
    let mut held = xact::begin(outer.conn(), 7).unwrap();
    let ending = "SELECT pg_terminate_backend(pg_backend_pid())";
    execute(held.conn(), ending).unwrap_err();
    assert_error!(held.finish(Ok::<_, Error>(())), Database);
    assert_error!(outer.finish(Ok::<_, Error>(())), CommitUnknown);
}

/// Diesel takes an interrupted statement outside of a transaction for a repair of the connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_replaces_a_closed_connection_whose_closing_was_cancelled() {
    let db = database().await;
    for cancels in 1..=4 {
        let proxy = Proxy::start(&db).await;
        let pool = Pool::builder()
            .max_size(1)
            .test_on_check_out(false)
            .build(ConnectionManager::<PgConnection>::new(proxy.url()))
            .unwrap();
        for _ in 0..cancels {
            proxy.cancel("advisory:abandoned");
        }
        let booked = spawn_blocking(move || {
            testing::assert_r2d2_replaces_broken(&pool);
            book(&mut pool.get().unwrap(), cancels, "Ada")
        });
        let booked = booked.await.unwrap();
        assert_eq!(booked, Ok(true), "{cancels}");
    }
    db.until_quiet().await;
}

const SHORT: Duration = Duration::from_millis(30);

#[tokio::test(flavor = "multi_thread")]
async fn on_held_is_returned_only_when_the_key_is_held() {
    #[advisory_lock(key = "room:<room>", name = "room", wait = wait, on_held = Ok(None))]
    fn or_none(conn: &mut PgConnection, room: i64, wait: Duration) -> QueryResult<Option<usize>> {
        insert(conn, room, "Ada").map(Some)
    }
    #[advisory_lock(key = "room:<room>", name = "room", scope = "session", wait = "never", on_held = Ok(Some(guest)))]
    fn or_given_back(
        conn: &mut PgConnection,
        room: i64,
        guest: String,
    ) -> QueryResult<Option<String>> {
        insert(conn, room, &guest)?;
        drop(guest);
        Ok(None)
    }
    let db = database().await;
    let (mut holder, mut conn) = (db.establish(), db.establish());
    let held = xact::begin(&mut holder, key_of(7)).unwrap();
    for wait in [Duration::ZERO, SHORT] {
        assert_eq!(or_none(&mut conn, 7, wait).unwrap(), None);
    }
    let given_back = or_given_back(&mut conn, 7, "Ada".to_owned()).unwrap();
    assert_eq!(given_back.as_deref(), Some("Ada"));
    finish(held);
    assert_eq!(committed(&db, 7).await, 0);
    assert_eq!(or_none(&mut conn, 7, SHORT).unwrap(), Some(1));
    assert_eq!(or_given_back(&mut conn, 7, "Ada".to_owned()).unwrap(), None);
    let pid = pid_of(&mut conn);
    db.terminate(pid).await;
    or_none(&mut conn, 7, SHORT).unwrap_err();
    assert_eq!(committed(&db, 7).await, 2);
}

type Connections = Pool<ConnectionManager<PgConnection>>;

#[advisory_lock(
    key = "room:<room>",
    name = "room",
    conn = pool.get().map_err(PoolError::new)?,
)]
fn book_when_told(
    pool: &Connections,
    room: i64,
    begun: oneshot::Sender<()>,
    go_on: &mpsc::Receiver<()>,
) -> Result<(), Error> {
    begun.send(()).unwrap();
    go_on.recv().unwrap();
    insert(conn, room, "Ada")?;
    Ok(())
}

/// Everything runs on one thread, which also queries the server meanwhile.
#[tokio::test]
async fn the_executor_is_free_while_a_call_waits_for_its_lock() {
    let db = database().await;
    let pool = db.r2d2(1);
    let mut holder = db.establish();
    let held = xact::begin(&mut holder, key_of(7)).unwrap();
    let (go, go_on) = mpsc::channel();
    go.send(()).unwrap();
    let (tell, _begun) = oneshot::channel();
    let call = spawn_blocking(move || book_when_told(&pool, 7, tell, &go_on));
    db.until_waiting(key_of(7)).await;
    held.finish(Ok::<_, Error>(())).unwrap();
    call.await.unwrap().unwrap();
    assert_eq!(committed(&db, 7).await, 1);
}

#[tokio::test]
async fn the_lock_of_a_dropped_caller_is_held_until_its_body_ends() {
    let db = database().await;
    let pool = db.r2d2(1);
    let (go, go_on) = mpsc::channel();
    let (tell, begun) = oneshot::channel();
    let handler =
        spawn(async move { spawn_blocking(move || book_when_told(&pool, 7, tell, &go_on)).await });
    begun.await.unwrap();
    handler.abort();
    assert!(handler.await.unwrap_err().is_cancelled());
    assert_eq!(db.locks().await.len(), 1);
    go.send(()).unwrap();
    db.until_quiet().await;
    assert_eq!(committed(&db, 7).await, 1);
}
