//! Blocking Diesel: calls that wait in this process. They queue for a key before they take a
//! connection, and between two tries a pool has the connection of a call that polls. The queues
//! belong to the process, not to a database: each test has rooms of its own.

use advisory_runtime::blocking::xact;
use advisory_runtime::{Error, advisory_lock};
use advisory_tests::blocking::{book_unlocked, finish, insert};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::futures::spawn_blocking;
use advisory_tests::pauses::pause;
use diesel::pg::PgConnection;
use diesel::r2d2::ConnectionManager;
use std::sync::mpsc;
use std::time::{Duration, Instant};

type Pool = diesel::r2d2::Pool<ConnectionManager<PgConnection>>;

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
            Error::NotAvailable { .. } => pause().await,
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

#[advisory_lock(key = "room:<room>", name = "room", conn = pool.get()?, wait = "1h", poll = "2ms")]
fn book(pool: &Pool, room: i64) -> anyhow::Result<usize> {
    Ok(insert(conn, room, "Ada")?)
}

#[advisory_lock(key = "room:<room>", name = "room", scope = "session", pool = pool, poll = "2ms", wait = "20ms", on_held = Ok(0))]
fn book_or_skip(pool: &Pool, room: i64) -> anyhow::Result<usize> {
    Ok(insert(conn, room, "Ada")?)
}

#[tokio::test(flavor = "multi_thread")]
async fn between_two_tries_the_connection_is_back_in_its_pool() {
    let db = database().await;
    let pool = db.r2d2(1);
    let mut holder = db.establish();
    let held = xact::begin(&mut holder, key_of(7)).unwrap();
    let calls = [7, 7].map(|room| {
        let pool = pool.clone();
        spawn_blocking(move || book(&pool, room))
    });
    // Both share one connection, which a third call uses in between.
    for _ in 0..3 {
        assert_eq!(book_or_skip(&pool, 7).unwrap(), 0);
        assert_eq!(book(&pool, 8).unwrap(), 1);
    }
    assert_eq!(db.locks().await.len(), 1, "none but the holder's");
    finish(held);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), 1);
    }
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [2, 3]);
    assert_eq!(book_or_skip(&pool, 7).unwrap(), 1);
    db.until_quiet().await;
}
