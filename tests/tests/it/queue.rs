//! Calls of one key that queue in the process, with one connection for all of them.
//!
//! The queues belong to the process, not to a database, so each test has a key of its own.

use crate::calls::AppError;
use advisory_runtime::{Error, advisory_lock, xact};
use advisory_tests::bookings::{committed, database, insert, key_of};
use advisory_tests::futures::spawn;
use advisory_tests::pauses::pause;
use advisory_tests::{assert_error, assert_matches};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

struct Repository(deadpool::Pool<AsyncPgConnection>);

impl Repository {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.0.get().await?, queue = 2, wait = "forever", handle = lock)]
    async fn book_in_line(&self, room: i64, until: &Notify) -> Result<Duration, AppError> {
        insert(conn, room, "Ada").await?;
        until.notified().await;
        Ok(lock.waited())
    }

    #[advisory_lock(key = "room:<room>", name = "room", pool = self.0, queue = 1000, wait = "10m", on_held = Err(AppError::Busy))]
    async fn book_patiently(&self, room: i64) -> Result<usize, AppError> {
        Ok(insert(conn, room, "Ada").await?)
    }

    #[advisory_lock(key = "room:<room>", name = "room", pool = self.0, queue = 1, wait = wait)]
    async fn book_within(&self, room: i64, wait: Duration) -> Result<usize, Error> {
        Ok(insert(conn, room, "Ada").await?)
    }

    #[advisory_lock(key = "room:<room>", name = "room", pool = self.0, queue = 9, wait = "never")]
    async fn book_at_once(&self, room: i64) -> Result<usize, Error> {
        Ok(insert(conn, room, "Ada").await?)
    }
}

#[tokio::test]
async fn a_queue_uses_one_connection_for_a_key_and_refuses_excess() {
    let db = database().await;
    let repository = Repository(db.deadpool(3));
    let until = Notify::new();
    let watch = async {
        while db.locks().await.is_empty() {
            pause().await;
        }
        assert_eq!(
            repository.0.status().size,
            1,
            "a queued call has no connection"
        );
        let refused = repository.book_in_line(7001, &until).await.unwrap_err();
        assert_matches!(
            &refused,
            AppError::Lock(text) if text.contains("2 calls of this process are already waiting")
        );
        let seen = Instant::now();
        // Another key is not queued after this one.
        assert_eq!(repository.book_patiently(8).await, Ok(1));
        let at_least = seen.elapsed();
        for booked in 1..=3 {
            until.notify_one();
            while committed(&db, 7001).await < booked {
                pause().await;
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
    // The time in the queue is part of it.
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
    let hot: Vec<_> = (0..200)
        .map(|_| {
            let repository = std::sync::Arc::clone(&repository);
            spawn(async move { repository.book_patiently(7002).await })
        })
        .collect();
    db.until_waiting(key_of(7002)).await;
    for room in 100..150 {
        assert_eq!(repository.book_patiently(room).await, Ok(1));
    }
    let waiting = db.locks().await.iter().filter(|lock| !lock.granted).count();
    assert_eq!(waiting, 1, "one connection waits for the hot key");
    held.finish(Ok::<_, Error>(())).await.unwrap();
    for call in hot {
        assert_eq!(call.await.unwrap(), Ok(1));
    }
    assert_eq!(committed(&db, 7002).await, 200);
}

/// The pool has one connection, so a refusal comes from the queue.
#[tokio::test]
async fn who_waits_in_line_for_too_long_is_busy_and_leaves_no_trace() {
    let db = database().await;
    let repository = Repository(db.deadpool(1));
    let until = Notify::new();
    let others = async {
        while db.locks().await.is_empty() {
            pause().await;
        }
        assert_error!(repository.book_at_once(7003).await, NotAvailable);
        // The first is no longer a waiting call.
        for _ in 0..2 {
            let busy = repository.book_within(7003, Duration::from_millis(30));
            assert_error!(busy.await, TimedOut);
        }
        until.notify_one();
    };
    let (held, ()) = tokio::join!(repository.book_in_line(7003, &until), others);
    held.unwrap();
    assert_eq!(repository.book_at_once(7003).await.unwrap(), 1);
}
