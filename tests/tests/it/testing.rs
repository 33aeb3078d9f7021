//! The assertions for users' tests: each passes when it should, and fails when it should.

use crate::calls::book;
use advisory_runtime::testing::Observer;
use advisory_runtime::{Request, Wait, advisory_lock, lock_key, session};
use advisory_tests::Database;
use advisory_tests::bookings::{bookings, committed, database, execute, insert, key_of, run};
use advisory_tests::futures::spawn;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

async fn observer(db: &Database) -> Observer<AsyncPgConnection> {
    Observer::new(db.connect().await)
}

/// The message of a future's panic, after the line of this file that has called the assertion.
async fn panic_of<F: Future>(future: F) -> String {
    let mut future = pin!(future);
    let caught = std::future::poll_fn(|context| {
        let poll = AssertUnwindSafe(|| future.as_mut().poll(context));
        match std::panic::catch_unwind(poll) {
            Ok(Poll::Ready(_)) => Poll::Ready(None),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Some(panic)),
        }
    });
    let panic = caught.await.expect("it panics");
    let message = *panic.downcast::<String>().unwrap();
    let (at, told) = message.split_once(": ").unwrap();
    assert!(at.contains("testing.rs:"), "{message}");
    told.to_owned()
}

/// Like [`book`], without the lock.
async fn book_unlocked(conn: &mut AsyncPgConnection, room: i64, guest: &str) -> QueryResult<bool> {
    if bookings(conn, room).await? > 0 {
        return Ok(false);
    }
    insert(conn, room, guest).await?;
    Ok(true)
}

#[tokio::test]
async fn a_call_with_its_lock_is_distinguished_from_one_without() {
    let db = database().await;
    let (mut conn, room) = (db.connect().await, 7);
    let mut observer = observer(&db).await;
    let key = lock_key!("room:<room: int>", name = "room");
    assert!(
        observer
            .assert_locked(key, book(&mut conn, room, "Ada"))
            .await
            .unwrap()
    );
    let told = panic_of(observer.assert_locked(key, book_unlocked(&mut conn, 8, "Ada"))).await;
    assert_eq!(
        told,
        format!(
            "the call has returned `Ok(true)`, and was not seen to hold the advisory lock `room:<room: int>` ({key})"
        )
    );
    // A call that locks another key does not pass.
    let told = panic_of(observer.assert_locked(key, book(&mut conn, 9, "Ada"))).await;
    assert!(told.contains(&key.to_string()), "{told}");
    // A lock that another session holds does not pass either.
    let held = session::acquire(&mut conn, key).await.unwrap();
    let told = panic_of(observer.assert_locked(key, std::future::ready(()))).await;
    assert!(told.contains("before the call"), "{told}");
    drop(held);
}

#[tokio::test]
async fn a_waiting_call_is_distinguished_from_one_that_does_not_wait() {
    let db = database().await;
    let mut conn = db.connect().await;
    let mut observer = observer(&db).await;
    let key = key_of(7);
    assert!(
        observer
            .assert_waits(key, book(&mut conn, 7, "Ada"))
            .await
            .unwrap()
    );
    assert_eq!(committed(&db, 7).await, 1);
    let told = panic_of(observer.assert_waits(key, book_unlocked(&mut conn, 7, "Bob"))).await;
    assert!(told.contains("was not seen to wait for"), "{told}");
    // The observer held the key meanwhile, and the panic has dropped its connection.
    db.until_no_locks().await;
    assert!(!book(&mut conn, 7, "Bob").await.unwrap());
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "never", on_held = Ok(false))]
async fn try_book(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<bool> {
    execute(conn, "SELECT 1").await?;
    Ok(true)
}

#[tokio::test]
async fn a_call_that_gives_up_does_not_wait() {
    let db = database().await;
    let mut conn = db.connect().await;
    let mut observer = observer(&db).await;
    let told = panic_of(observer.assert_waits(key_of(7), try_book(&mut conn, 7))).await;
    assert!(told.contains("was not seen to wait for"), "{told}");
    db.until_no_locks().await;
    assert!(try_book(&mut conn, 7).await.unwrap());
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "never")]
async fn book_now(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    insert(conn, room, "Ada").await
}

#[tokio::test]
async fn a_refused_call_is_distinguished_from_one_that_works_and_one_that_fails() {
    let db = database().await;
    let (mut conn, room) = (db.connect().await, 7);
    let key = lock_key!("room:<room: int>", name = "room");
    let mut first = observer(&db).await;
    first.assert_refused(key, book_now(&mut conn, room)).await;
    assert_eq!(committed(&db, 7).await, 0);
    assert_eq!(book_now(&mut conn, room).await, Ok(1));
    let told = panic_of(first.assert_refused(key, book_unlocked(&mut conn, 8, "Ada"))).await;
    assert!(told.contains("has returned `Ok(true)`"), "{told}");
    let failed = async { Err::<(), _>(diesel::result::Error::NotFound) };
    let told = panic_of(observer(&db).await.assert_refused(key, failed)).await;
    assert!(told.contains("Record not found"), "{told}");
    let mut brief = observer(&db).await.timeout(Duration::from_millis(20));
    let told = panic_of(brief.assert_refused(key, book(&mut conn, room, "Ada"))).await;
    assert!(told.contains("was not refused"), "{told}");
    db.until_quiet().await;
}

#[tokio::test]
async fn two_calls_meet_where_a_missing_lock_would_show() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let mut observer = observer(&db).await;
    for room in 0..20 {
        let (ada, bob) = (book(&mut a, room, "Ada"), book(&mut b, room, "Bob"));
        let (ada, bob) = observer.interleave(key_of(room), ada, bob).await;
        assert_eq!((ada.unwrap(), bob.unwrap()), (true, false), "{room}");
        assert_eq!(committed(&db, room).await, 1);
    }
    let (ada, bob) = (book(&mut a, 30, "Ada"), book_unlocked(&mut b, 30, "Bob"));
    let told = panic_of(observer.interleave(key_of(30), ada, bob)).await;
    assert!(told.contains("was not seen to wait for"), "{told}");
    // The calls are dropped, and release their lock.
    observer.until_free(key_of(30)).await;
    let (ada, bob) = (book_unlocked(&mut a, 31, "Ada"), book(&mut b, 31, "Bob"));
    let room = 31;
    let key = lock_key!("room:<room: int>", name = "room");
    let told = panic_of(observer.interleave(key, ada, bob)).await;
    assert!(told.contains("was not seen to hold"), "{told}");
    assert!(told.contains("`room:<room: int>`"), "{told}");
}

#[tokio::test]
async fn states_are_waited_for_and_missed() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let mut observer = observer(&db).await.timeout(Duration::from_millis(30));
    let told = panic_of(observer.until_held((7, 8))).await;
    assert!(
        told.contains("nobody holds the advisory lock `(7, 8)`"),
        "{told}"
    );
    let told = panic_of(observer.until_waiting(7)).await;
    assert!(told.contains("nobody waits for"), "{told}");
    let held = session::acquire(&mut a, (7, 8)).await.unwrap();
    observer.until_held((7, 8)).await;
    assert!(observer.is_held((7, 8)).await && !observer.is_held(7).await);
    let told = panic_of(observer.until_free((7, 8))).await;
    assert!(told.contains("somebody still holds"), "{told}");
    let request = Request::new((7, 8)).wait(Wait::Forever);
    let waiter = spawn(async move { session::acquire(&mut b, request).await.map(drop) });
    let mut patient = Observer::new(db.connect().await);
    patient.until_waiting((7, 8)).await;
    assert!(patient.is_waited_for((7, 8)).await);
    drop(held);
    waiter.await.unwrap().unwrap();
    patient.until_free((7, 8)).await;
}

#[advisory_lock(keys = [first, second])]
async fn both(conn: &mut AsyncPgConnection, first: i64, second: i64) -> QueryResult<usize> {
    execute(conn, "SELECT 1").await
}

/// The first call locks key 2 second, and the second call locks it first.
#[tokio::test]
async fn two_calls_with_several_keys_meet_at_any_common_one() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let mut observer = observer(&db).await;
    for second in [[2, 3], [1, 2], [0, 1], [0, 2]] {
        let [one, other] = second;
        let (first, second) = (both(&mut a, 1, 2), both(&mut b, one, other));
        let keys = Request::all([1_i64, 2]);
        let (first, second) = observer.interleave(keys, first, second).await;
        assert!(first.is_ok() && second.is_ok(), "{one}, {other}");
    }
    let keys = Request::all([1_i64, 2]);
    let told = panic_of(observer.interleave(keys.clone(), both(&mut a, 1, 2), both(&mut b, 3, 4)));
    let told = told.await;
    assert!(
        told.contains("was not seen to wait for the advisory locks `1`, `2`"),
        "{told}"
    );
    observer.until_free(1).await;
    // All of them are held, not only one. The calls above were dropped, which closes their
    // connections.
    let mut a = db.connect().await;
    let told = panic_of(observer.assert_locked(keys.clone(), both(&mut a, 2, 3))).await;
    assert!(told.contains("was not seen to hold"), "{told}");
    observer
        .assert_waits(keys, both(&mut a, 0, 2))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_call_that_fails_before_its_lock_shows_its_error() {
    let db = database().await;
    let (mut a, mut b) = (db.connect().await, db.connect().await);
    let mut observer = observer(&db).await;
    run(&mut a, "SET lock_timeout = '1ms'").await;
    let held = session::acquire(&mut b, 9).await.unwrap();
    let told = panic_of(observer.assert_locked(7, both(&mut a, 8, 9))).await;
    assert!(told.contains("the call has returned `Err("), "{told}");
    assert!(told.contains("lock timeout"), "{told}");
    drop(held);
}
