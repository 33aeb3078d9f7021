//! Calls that poll and get their connection from a pool: between two tries it is back in the pool.

use crate::calls::AppError;
use advisory_runtime::{advisory_lock, xact};
use advisory_tests::Database;
use advisory_tests::bookings::{committed, database, finish, insert, key_of};
use advisory_tests::pauses::pause;
use advisory_tests::polls::{HOUR, SHORT};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool;
use std::pin::Pin;
use std::time::Duration;

struct Repository(deadpool::Pool<AsyncPgConnection>);

impl Repository {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.0.get().await?, wait = "1h", poll = interval, handle = lock)]
    async fn book(&self, room: i64, interval: Duration) -> Result<Duration, AppError> {
        insert(conn, room, "Ada").await?;
        Ok(lock.waited())
    }

    #[advisory_lock(key = "room:<room>", name = "room", scope = "session", pool = self.0, poll = interval)]
    async fn book_in_session(&self, room: i64, interval: Duration) -> Result<usize, AppError> {
        Ok(insert(conn, room, "Ada").await?)
    }

    #[advisory_lock(keys = ["room:<room>", "room:<other>"], name = "room", conn = self.0.get().await?, wait = "40ms", poll = "2ms", on_held = Err(AppError::Busy))]
    async fn book_two(&self, room: i64, other: i64) -> Result<usize, AppError> {
        insert(conn, room, "Ada").await?;
        Ok(insert(conn, other, "Ada").await?)
    }

    #[advisory_lock(key = "polled-in-line:<room>", pool = self.0, queue = 16, wait = "1h", poll = "2ms")]
    async fn book_in_line(&self, room: i64) -> Result<usize, AppError> {
        Ok(insert(conn, room, "Ada").await?)
    }

    fn is_free(&self) -> bool {
        self.0.status().available == 1
    }
}

/// Waits until the pool's one connection is back, and its last statement was a try.
async fn until_back(db: &Database, repository: &Repository) {
    let tries = "SELECT 'none' WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'idle' \
                 AND datname = current_database() AND query LIKE '%pg_try_advisory%')";
    loop {
        db.until_empty(Duration::from_secs(30), "a missed try", tries)
            .await;
        if repository.is_free() {
            return;
        }
        pause().await;
    }
}

#[tokio::test]
async fn between_two_tries_the_connection_is_back_in_its_pool() {
    let db = database().await;
    let mut holder = db.connect().await;
    let repository = Repository(db.deadpool(1));
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    // Another key is locked meanwhile, on the only connection.
    let mut calls: [Pin<Box<dyn Future<Output = ()>>>; 2] = [
        Box::pin(async { panic!("{:?}", repository.book(7, HOUR).await) }),
        Box::pin(async { panic!("{:?}", repository.book_in_session(7, HOUR).await) }),
    ];
    for call in &mut calls {
        tokio::select! {
            () = call => {}
            () = until_back(&db, &repository) => {}
        }
        repository.book(8, HOUR).await.unwrap();
    }
    // When they are dropped, the pool is unchanged.
    drop(calls);
    assert!(repository.is_free());
    assert_eq!(db.locks().await.len(), 1);
    assert_eq!(repository.book_two(8, 7).await, Err(AppError::Busy));
    let calls = async {
        tokio::join!(
            repository.book(7, SHORT),
            repository.book_in_session(7, SHORT),
            repository.book_in_line(7),
            repository.book_in_line(7),
            async {
                until_back(&db, &repository).await;
                finish(held).await;
            }
        )
    };
    let (booked, in_session, in_line, behind, ()) = calls.await;
    // Time in which another call had the connection counts too.
    assert!(booked.unwrap() >= SHORT / 2);
    assert_eq!([in_session, in_line, behind], [Ok(1), Ok(1), Ok(1)]);
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [4, 2]);
    db.until_quiet().await;
}

#[tokio::test]
async fn a_pool_closed_between_tries_ends_the_call_with_its_error() {
    let db = database().await;
    let mut holder = db.connect().await;
    let repository = Repository(db.deadpool(1));
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let (booked, ()) = tokio::join!(repository.book(7, SHORT), async {
        until_back(&db, &repository).await;
        repository.0.close();
    });
    assert_eq!(booked, Err(AppError::Pool));
    finish(held).await;
}
