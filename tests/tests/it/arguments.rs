//! The attribute's arguments, each on a function as users write it. `queue`, `hold` and `polls`
//! test those arguments.

use crate::calls::{AppError, book_or_busy};
use advisory_runtime::{Error, Key, Request, Wait, advisory_lock, xact};
use advisory_tests::assert_matches;
use advisory_tests::bookings::{committed, database, insert, key_of};
use advisory_tests::futures::spawn;
use advisory_tests::pauses::pause;
use diesel::QueryResult;
use diesel_async::pooled_connection::deadpool;
use diesel_async::{AsyncConnection, AsyncPgConnection};
use std::time::{Duration, Instant};
use tokio::sync::Barrier;

#[advisory_lock(key = "room:<room>", name = "room", wait = "never", on_held = Ok(None))]
async fn book_or_none(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<Option<usize>> {
    insert(conn, room, "Ada").await.map(Some)
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "30ms", on_held = Ok(()))]
async fn book_or_skip(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    insert(conn, room, "Ada").await.map(drop)
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
    // Inside a transaction too, which stays usable.
    conn.transaction::<_, diesel::result::Error, _>(async |conn| {
        assert_eq!(book_or_none(conn, 7).await.unwrap(), None);
        book_or_skip(conn, 7).await.unwrap();
        insert(conn, 8, "Grace").await
    })
    .await
    .unwrap();
    assert_eq!([committed(&db, 7).await, committed(&db, 8).await], [0, 1]);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(book_or_none(&mut conn, 7).await.unwrap(), Some(1));
    assert_eq!(book_or_busy(&mut conn, 7, Duration::ZERO).await, Ok(1));
    assert_eq!(committed(&db, 7).await, 2);
}

struct Repository(deadpool::Pool<AsyncPgConnection>);

impl Repository {
    #[advisory_lock(key = "room:<room>", name = "room", conn = self.0.get().await?, wait = "never", on_held = Err(AppError::Busy))]
    async fn book(&self, room: i64) -> Result<usize, AppError> {
        Ok(insert(conn, room, "Ada").await?)
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
            pause().await;
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
        Ok(held.finish(Ok::<_, Error>(1)).await?)
    }
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key_of(7)).await.unwrap();
    let refused = outer(&mut conn).await.unwrap_err();
    assert_matches!(refused, AppError::Lock(_));
    held.finish(Ok::<_, Error>(())).await.unwrap();
}

#[tokio::test]
async fn readers_run_together() {
    #[advisory_lock(key = "room:<room>", name = "room", mode = "shared")]
    async fn read(conn: &mut AsyncPgConnection, room: i64, meet: &Barrier) -> QueryResult<i64> {
        meet.wait().await;
        advisory_tests::bookings::bookings(conn, room).await
    }
    let db = database().await;
    let meet = Barrier::new(2);
    let (mut one, mut two) = (db.connect().await, db.connect().await);
    // Both are in the body at once; otherwise neither would pass the barrier.
    let (first, second) = tokio::join!(read(&mut one, 7, &meet), read(&mut two, 7, &meet));
    assert_eq!([first.unwrap(), second.unwrap()], [0, 0]);
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
    let asking = spawn(async move { both(&mut conn, 8, 7).await });
    db.until_waiting(key_of(7)).await;
    let seen = Instant::now();
    // The handle has to report the time that has passed.
    db.run("SELECT pg_sleep(0.02)").await;
    let at_least = seen.elapsed();
    held.finish(Ok::<_, Error>(())).await.unwrap();
    let (keys, waited) = asking.await.unwrap().unwrap();
    let mut expected = [Key::BigInt(key_of(7)), Key::BigInt(key_of(8))];
    expected.sort();
    assert_eq!(keys, expected);
    assert!(
        waited >= at_least && waited <= started.elapsed(),
        "{waited:?}"
    );
}
