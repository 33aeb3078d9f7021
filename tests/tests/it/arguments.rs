//! What the attribute's arguments do, each on a function as users write it.
//!
//! The lines of `queue` are the process's, whichever database a key is of: tests that queue have keys of their own.

use crate::bookings::{committed, database, execute, insert, key_of};
use advisory_runtime::{Error, Key, Request, Wait, advisory_lock, xact};
use advisory_tests::debug_checks_are_on;
use diesel::QueryResult;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::{Duration, Instant};
use tokio::sync::{Barrier, Notify};

#[derive(Debug, PartialEq)]
enum AppError {
    Busy,
    Pool,
    Lock(String),
}

impl From<Error> for AppError {
    fn from(error: Error) -> Self {
        Self::Lock(error.to_string())
    }
}

impl From<deadpool::PoolError> for AppError {
    fn from(_: deadpool::PoolError) -> Self {
        Self::Pool
    }
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "never", on_held = Ok(None))]
async fn book_or_none(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<Option<usize>> {
    insert(conn, room, "Ada").await.map(Some)
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "30ms", on_held = Ok(()))]
async fn book_or_skip(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    insert(conn, room, "Ada").await.map(drop)
}

#[advisory_lock(key = "room:<room>", name = "room", wait = patience, on_held = Err(AppError::Busy))]
async fn book_or_busy(
    conn: &mut AsyncPgConnection,
    room: i64,
    patience: Duration,
) -> Result<usize, AppError> {
    Ok(insert(conn, room, "Ada").await.map_err(Error::from)?)
}

#[tokio::test]
async fn on_held_is_returned_in_place_of_the_body() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    assert_eq!(book_or_none(&mut conn, 7).await.unwrap(), None);
    book_or_skip(&mut conn, 7).await.unwrap();
    for patience in [0, 30] {
        let patience = Duration::from_millis(patience);
        let busy = book_or_busy(&mut conn, 7, patience).await;
        assert_eq!(busy, Err(AppError::Busy));
    }
    // Inside a transaction too, which goes on.
    conn.transaction::<_, diesel::result::Error, _>(async |conn| {
        assert_eq!(book_or_none(conn, 7).await.unwrap(), None);
        book_or_skip(conn, 7).await.unwrap();
        insert(conn, 8, "Grace").await
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 1]);
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    assert_eq!(book_or_none(&mut conn, 7).await.unwrap(), Some(1));
    assert_eq!(book_or_busy(&mut conn, 7, Duration::ZERO).await, Ok(1));
    assert_eq!(committed(&db, 7).await, 2);
}

struct Repository(deadpool::Pool<AsyncPgConnection>);

impl Repository {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.0.get().await?, wait = "never", on_held = Err(AppError::Busy))]
    async fn book(&self, room: i64) -> Result<usize, AppError> {
        Ok(insert(conn, room, "Ada").await.map_err(Error::from)?)
    }

    #[advisory_lock(key = "room:<room>", name = "room", conn = self.0.get().await?, queue = 2, wait = "forever", handle = lock)]
    async fn book_in_line(&self, room: i64, until: &Notify) -> Result<Duration, AppError> {
        insert(conn, room, "Ada").await.map_err(Error::from)?;
        until.notified().await;
        Ok(lock.waited())
    }

    #[advisory_lock(key = "room:<room>", name = "room", conn = self.0.get().await?, queue = 1000, wait = "10m", on_held = Err(AppError::Busy))]
    async fn book_patiently(&self, room: i64) -> Result<usize, AppError> {
        Ok(insert(conn, room, "Ada").await.map_err(Error::from)?)
    }
}

#[tokio::test]
async fn a_pool_without_a_connection_is_not_taken_for_busy() {
    let db = database().await;
    let repository = Repository(db.deadpool(1));
    let taken = repository.0.get().await.unwrap();
    let pool = repository.0.clone();
    let closing = async {
        while pool.status().waiting == 0 {
            tokio::task::yield_now().await;
        }
        pool.close();
    };
    let (booked, ()) = tokio::join!(repository.book(7), closing);
    assert_eq!(booked, Err(AppError::Pool));
    drop(taken);
}

#[tokio::test]
async fn a_body_that_is_itself_refused_a_lock_keeps_its_own_error() {
    #[advisory_lock(key = "outer", name = "outer", wait = "never", on_held = Err(AppError::Busy))]
    async fn outer(conn: &mut AsyncPgConnection) -> Result<usize, AppError> {
        let request = Request::new(key_of(7)).wait(Wait::Never);
        let held = xact::begin(conn, request).await?;
        Ok(xact::finish(held, Ok::<_, Error>(1)).await?)
    }
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let refused = outer(&mut conn).await.unwrap_err();
    assert!(matches!(refused, AppError::Lock(_)), "{refused:?}");
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test]
async fn readers_run_together_and_a_writer_alone() {
    #[advisory_lock(key = "room:<room>", name = "room", mode = "shared")]
    async fn read(conn: &mut AsyncPgConnection, room: i64, meet: &Barrier) -> QueryResult<i64> {
        meet.wait().await;
        crate::bookings::bookings(conn, room).await
    }
    let db = database().await;
    let meet = Barrier::new(2);
    let (mut one, mut two, mut writer) =
        (db.connect().await, db.connect().await, db.connect().await);
    // Both are inside at once, or neither ever gets past the barrier.
    let (first, second) = tokio::join!(read(&mut one, 7, &meet), read(&mut two, 7, &meet));
    assert_eq!([first.unwrap(), second.unwrap()], [0, 0]);
    let reading = xact::begin(&mut one, Request::new(key_of(7)).shared())
        .await
        .unwrap();
    assert_eq!(book_or_none(&mut writer, 7).await.unwrap(), None);
    let writing = tokio::spawn(async move { crate::bookings::book(&mut writer, 7, "Ada").await });
    db.until_waiting(key_of(7)).await;
    // First in, first out: a reader behind a waiting writer waits too.
    let late = Request::new(key_of(7))
        .shared()
        .wait(Wait::For(Duration::from_millis(30)));
    let error = xact::begin(&mut two, late).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    xact::finish(reading, Ok::<_, Error>(())).await.unwrap();
    assert!(writing.await.unwrap().unwrap());
}

#[tokio::test]
async fn nested_is_refused_where_the_attribute_says_so() {
    #[advisory_lock(key = "room:<room>", name = "room", nested = "refuse")]
    async fn alone(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
        insert(conn, room, "Ada").await
    }
    let db = database().await;
    let mut conn = db.connect().await;
    alone(&mut conn, 7).await.unwrap();
    conn.transaction::<_, diesel::result::Error, _>(async |conn| {
        let error = alone(conn, 7).await.unwrap_err();
        let found = Error::find(&error);
        assert!(
            matches!(found.as_deref(), Some(Error::InTransaction { .. })),
            "{error:?}"
        );
        insert(conn, 8, "Grace").await
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [1, 1]);
}

#[tokio::test]
async fn the_handle_tells_the_key_and_how_long_it_took() {
    #[advisory_lock(keys = ["room:<a>", "room:<b>"], name = "room", handle = lock)]
    async fn both(
        conn: &mut AsyncPgConnection,
        a: i64,
        b: i64,
    ) -> QueryResult<(Vec<Key>, Duration)> {
        insert(conn, a, "Ada").await?;
        Ok((lock.keys().to_vec(), lock.waited()))
    }
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let started = Instant::now();
    let asking = tokio::spawn(async move { both(&mut conn, 8, 7).await });
    db.until_waiting(key_of(7)).await;
    let seen = Instant::now();
    // A time that has passed is what the handle has to tell.
    db.run("SELECT pg_sleep(0.02)").await;
    let at_least = seen.elapsed();
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    let (keys, waited) = asking.await.unwrap().unwrap();
    let mut expected = [Key::BigInt(key_of(7)), Key::BigInt(key_of(8))];
    expected.sort();
    assert_eq!(keys, expected);
    assert!(
        waited >= at_least && waited <= started.elapsed(),
        "{waited:?}"
    );
}

#[tokio::test]
async fn a_queue_takes_one_connection_for_a_key_and_refuses_who_comes_too_many() {
    let db = database().await;
    let repository = Repository(db.deadpool(3));
    let until = Notify::new();
    let watch = async {
        while db.locks().await.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            repository.0.status().size,
            1,
            "a queued call has no connection"
        );
        let refused = repository.book_in_line(7001, &until).await.unwrap_err();
        assert!(
            matches!(&refused, AppError::Lock(text) if text.contains("2 calls of this process are already waiting")),
            "{refused:?}"
        );
        let seen = Instant::now();
        // Another key is not behind this one.
        assert_eq!(repository.book_patiently(8).await, Ok(1));
        let at_least = seen.elapsed();
        for booked in 1..=3 {
            until.notify_one();
            while committed(&db, 7001).await < booked {
                tokio::task::yield_now().await;
            }
        }
        at_least
    };
    let (first, second, third, at_least) = tokio::join!(
        repository.book_in_line(7001, &until),
        repository.book_in_line(7001, &until),
        repository.book_in_line(7001, &until),
        watch
    );
    first.unwrap();
    // The time in line is part of it.
    for waited in [second.unwrap(), third.unwrap()] {
        assert!(waited >= at_least, "{waited:?}, {at_least:?}");
    }
    assert_eq!(
        [committed(&db, 7001).await, committed(&db, 8).await],
        [3, 1]
    );
    db.until_quiet().await;
}

#[tokio::test]
async fn a_hot_key_with_a_queue_leaves_the_pool_to_the_others() {
    let db = database().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key_of(7002)).await.unwrap();
    let repository = std::sync::Arc::new(Repository(db.deadpool(8)));
    let hot: Vec<_> = (0..1000)
        .map(|_| {
            let repository = std::sync::Arc::clone(&repository);
            tokio::spawn(async move { repository.book_patiently(7002).await })
        })
        .collect();
    db.until_waiting(key_of(7002)).await;
    for room in 100..150 {
        assert_eq!(repository.book_patiently(room).await, Ok(1));
    }
    let waiting = db.locks().await.iter().filter(|lock| !lock.granted).count();
    assert_eq!(waiting, 1, "one connection waits for the hot key");
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    for call in hot {
        assert_eq!(call.await.unwrap(), Ok(1));
    }
    assert_eq!(committed(&db, 7002).await, 1000);
}

#[tokio::test]
async fn who_waits_in_line_for_too_long_is_busy_and_leaves_no_trace() {
    let db = database().await;
    let repository = Repository(db.deadpool(2));
    let until = Notify::new();
    let mut never = Request::new(key_of(7003)).wait(Wait::Never);
    let mut short = Request::new(key_of(7003)).wait(Duration::from_millis(30));
    let holding = repository.book_in_line(7003, &until);
    let others = async {
        while db.locks().await.is_empty() {
            tokio::task::yield_now().await;
        }
        let busy = advisory_runtime::__private::queue(&mut never, 9)
            .await
            .unwrap_err();
        assert!(matches!(busy, Error::NotAvailable { .. }), "{busy:?}");
        let busy = advisory_runtime::__private::queue(&mut short, 9)
            .await
            .unwrap_err();
        assert!(matches!(busy, Error::TimedOut { .. }), "{busy:?}");
        until.notify_one();
    };
    let (held, ()) = tokio::join!(holding, others);
    held.unwrap();
    drop(
        advisory_runtime::__private::queue(&mut never, 1)
            .await
            .unwrap(),
    );
}

#[advisory_lock(key = "room:<room>", name = "room")]
async fn book_at_last(conn: &mut AsyncPgConnection, room: i64) -> Result<usize, AppError> {
    Ok(insert(conn, room, "Ada").await.map_err(Error::from)?)
}

/// Books twice, with the second call inside the first one's body, on another connection.
#[advisory_lock(key = "room:<room>", name = "room", wait = "30s")]
async fn twice(
    conn: &mut AsyncPgConnection,
    other: &mut AsyncPgConnection,
    room: i64,
    patience: Option<Duration>,
) -> Result<usize, AppError> {
    insert(conn, room, "Ada").await.map_err(Error::from)?;
    match patience {
        Some(patience) => book_or_busy(other, room, patience).await,
        None => book_at_last(other, room).await,
    }
}

/// With the checks of debug builds and without them.
#[tokio::test]
async fn a_wait_for_its_own_task_that_ends_is_a_wait_like_any_other() {
    let db = database().await;
    let (mut one, mut two) = (db.connect().await, db.connect().await);
    for patience in [0, 30] {
        let patience = Some(Duration::from_millis(patience));
        let end = twice(&mut one, &mut two, 7, patience).await;
        assert_eq!(end, Err(AppError::Busy), "{patience:?}");
        assert_eq!(committed(&db, 7).await, 0);
    }
    // Where the session's own time-out bounds it.
    execute(&mut two, "SET lock_timeout = '30ms'")
        .await
        .unwrap();
    let end = twice(&mut one, &mut two, 7, None).await;
    assert!(
        matches!(&end, Err(AppError::Lock(text)) if !text.contains("already held by this task")),
        "{end:?}"
    );
    db.until_quiet().await;
}

/// In debug builds only; it looks at the body that is running, so calls at the same time are not nested.
#[tokio::test]
async fn a_call_that_waits_for_its_own_task_is_told_so() {
    if !debug_checks_are_on() {
        return;
    }
    let db = database().await;
    let (mut one, mut two) = (db.connect().await, db.connect().await);
    let error = twice(&mut one, &mut two, 7, None).await.unwrap_err();
    assert!(
        matches!(&error, AppError::Lock(text) if text.contains("already held by this task")),
        "{error:?}"
    );
    let beside = Duration::from_secs(30);
    let (first, second) = tokio::join!(
        book_or_busy(&mut one, 7, beside),
        book_or_busy(&mut two, 7, beside)
    );
    assert_eq!([first, second], [Ok(1), Ok(1)]);
    // The same number in another database is another lock.
    let elsewhere = database().await;
    let mut far = elsewhere.connect().await;
    assert_eq!(twice(&mut one, &mut far, 7, None).await, Ok(1));
    db.until_quiet().await;
}
