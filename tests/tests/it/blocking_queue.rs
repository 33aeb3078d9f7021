//! Blocking Diesel: queues inside this process. Calls queue for a key before they take a
//! connection, and a call that would wait for its own thread is reported. The queues belong to the
//! process, not to a database: each test that uses one has rooms of its own.

use crate::blocking_calls::book;
use advisory_runtime::blocking::xact;
use advisory_runtime::{Error, Wait, advisory_lock};
use advisory_tests::blocking::{book_unlocked, execute, finish};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::debug_checks_are_on;
use diesel::QueryResult;
use diesel::pg::PgConnection;
use diesel::r2d2::ConnectionManager;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

type Pool = diesel::r2d2::Pool<ConnectionManager<PgConnection>>;

/// Holds the key until a signal.
#[advisory_lock(key = "queued:<room>", name = "queued", queue = 8, conn = pool.get()?)]
fn first(
    pool: &Pool,
    room: i64,
    started: mpsc::Sender<()>,
    go_on: &mpsc::Receiver<()>,
) -> anyhow::Result<bool> {
    started.send(())?;
    go_on.recv()?;
    Ok(book_unlocked(conn, room, "first")?)
}

#[advisory_lock(key = "queued:<room>", name = "queued", queue = 8, pool = pool)]
fn queued(pool: &Pool, room: i64) -> anyhow::Result<bool> {
    Ok(book_unlocked(conn, room, "queued")?)
}

#[advisory_lock(key = "queued:<room>", name = "queued", queue = 8, wait = wait, conn = pool.get()?)]
fn within(pool: &Pool, room: i64, wait: Duration) -> anyhow::Result<bool> {
    Ok(book_unlocked(conn, room, "within")?)
}

/// Only if nothing is queued.
#[advisory_lock(key = "queued:<room>", name = "queued", queue = 1, wait = "never", conn = pool.get()?)]
fn second_in_line(pool: &Pool, room: i64) -> anyhow::Result<bool> {
    Ok(book_unlocked(conn, room, "second")?)
}

fn lock_error(error: &anyhow::Error) -> &Error {
    error.downcast_ref().unwrap_or_else(|| panic!("{error:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_calls_use_one_connection_and_excess_is_refused() {
    let db = database().await;
    let pool = db.r2d2(2);
    let (start, started) = mpsc::channel();
    let (go, go_on) = mpsc::channel();
    let holding = spawn_blocking({
        let pool = pool.clone();
        move || first(&pool, 7, start, &go_on)
    });
    started.recv().unwrap();
    let error = within(&pool, 7, Duration::from_millis(30)).unwrap_err();
    assert!(
        matches!(lock_error(&error), Error::TimedOut { source: None, .. }),
        "{error:?}"
    );
    let waiting = spawn_blocking({
        let pool = pool.clone();
        move || queued(&pool, 7)
    });
    // The queued call shows in what the next one gets.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < end, "nobody is in the queue");
        let error = second_in_line(&pool, 7).unwrap_err();
        match lock_error(&error) {
            Error::NotAvailable { .. } => tokio::task::yield_now().await,
            Error::QueueFull { limit: 1, .. } => break,
            error => panic!("{error:?}"),
        }
    }
    assert_eq!(db.locks().await.len(), 1, "nobody waits at the server");
    let state = pool.state();
    assert!(state.connections - state.idle_connections <= 1, "{state:?}");
    assert!(queued(&pool, 8).unwrap(), "another key passes");
    go.send(()).unwrap();
    assert!(holding.await.unwrap().unwrap());
    assert!(!waiting.await.unwrap().unwrap());
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [1, 1]);
    assert!(!second_in_line(&pool, 7).unwrap(), "the line is empty");
    db.until_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_gives_the_turn_and_the_only_connection_on() {
    #[advisory_lock(key = "queued:<room>", name = "queued", queue = 8, conn = pool.get()?)]
    fn panics(pool: &Pool, room: i64) -> anyhow::Result<bool> {
        book_unlocked(conn, room, "nobody")?;
        panic!("the body's own panic")
    }
    let db = database().await;
    let pool = db.r2d2(1);
    let threads: Vec<_> = (0..8)
        .map(|turn| {
            let pool = pool.clone();
            spawn_blocking(move || {
                if turn % 2 == 0 {
                    panics(&pool, 70)
                } else {
                    queued(&pool, 70)
                }
            })
        })
        .collect();
    let (mut booked, mut panicked) = (0, 0);
    for thread in threads {
        match thread.await {
            Ok(end) => booked += i32::from(end.unwrap()),
            Err(_) => panicked += 1,
        }
    }
    assert_eq!([booked, panicked], [1, 4]);
    assert_eq!(committed(&db, 70).await, 1);
    db.until_quiet().await;
}

/// Books under the lock that the body already holds, on another connection.
#[advisory_lock(key = "room:<room>", name = "room")]
fn on_two_connections(
    conn: &mut PgConnection,
    other: &mut PgConnection,
    room: i64,
) -> QueryResult<bool> {
    execute(conn, "SELECT 1")?;
    book(other, room, "Ada")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_its_own_thread_that_ends_is_a_wait_like_any_other() {
    let db = database().await;
    let (mut conn, mut other) = (db.establish(), db.establish());
    execute(&mut other, "SET lock_timeout = '30ms'").unwrap();
    let error = on_two_connections(&mut conn, &mut other, 7).unwrap_err();
    assert!(
        matches!(Error::find(&error).as_deref(), Some(Error::TimedOut { lock, .. }) if lock == "room:<room>"),
        "{error:?}"
    );
    assert!(book(&mut other, 7, "Ada").unwrap(), "both go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_call_that_waits_for_its_own_thread_is_refused() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let (mut conn, mut other) = (db.establish(), db.establish());
    let error = on_two_connections(&mut conn, &mut other, 7).unwrap_err();
    assert!(
        matches!(Error::find(&error).as_deref(), Some(Error::SelfDeadlock { lock, .. }) if lock == "room:<room>"),
        "{error:?}"
    );
    assert_eq!(db.locks().await, []);
    assert!(book(&mut other, 7, "Ada").unwrap(), "both go on");
    assert!(!book(&mut conn, 7, "Ada").unwrap());
}

/// A second call on the same connection, one that does not wait, and one in another database are
/// not refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_does_not_wait_for_its_own_thread_passes() {
    #[advisory_lock(key = "room:<room>", name = "room")]
    fn twice(conn: &mut PgConnection, room: i64) -> QueryResult<bool> {
        book(conn, room, "Ada")
    }
    #[advisory_lock(key = "room:<room>", name = "room")]
    fn never(conn: &mut PgConnection, other: &mut PgConnection, room: i64) -> QueryResult<()> {
        execute(conn, "SELECT 1")?;
        let request = advisory_runtime::Request::new(key_of(room)).wait(Wait::Never);
        let error = xact::begin(other, request).map(finish).unwrap_err();
        assert!(matches!(error, Error::NotAvailable { .. }), "{error:?}");
        Ok(())
    }
    let db = database().await;
    let elsewhere = database().await;
    let (mut conn, mut other) = (db.establish(), db.establish());
    assert!(twice(&mut conn, 7).unwrap());
    never(&mut conn, &mut other, 7).unwrap();
    assert!(on_two_connections(&mut conn, &mut elsewhere.establish(), 7).unwrap());
    assert_eq!(committed(&elsewhere, 7).await, 1);
}
