//! Thousands of keys in one call: its statements contain no expression that is nested as deep as
//! there are keys. The sessions have the smallest stack that the server allows.

use crate::calls::assert_closed;
use advisory_runtime::{Error, Isolation, Key, Request, Wait, blocking, session, xact};
use advisory_tests::{Database, assert_error, owns_server};
use diesel_async::AsyncPgConnection;
use std::time::Duration;

/// More of one key space than a target list can have.
const KEYS: i32 = 2_500;
const LONG: Duration = Duration::from_secs(600);

fn many() -> Request {
    let keys = (1..=KEYS).map(|number| match number % 8 {
        0 => Key::IntInt(number, -number),
        _ => Key::BigInt(i64::from(number)),
    });
    Request::all(keys)
}

async fn database() -> Database {
    let db = advisory_tests::bookings::database().await;
    if owns_server() {
        db.set("max_stack_depth = '100kB'").await;
    }
    db
}

async fn held(db: &Database) -> i64 {
    db.count("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").await
}

fn requests() -> Vec<Request> {
    vec![
        many(),
        many().shared().wait(LONG),
        many().wait(Wait::Never).max_hold(LONG),
    ]
}

#[tokio::test]
async fn thousands_of_session_level_keys_are_checked_and_released() {
    let db = database().await;
    let conn: &mut AsyncPgConnection = &mut db.connect().await;
    for request in requests() {
        let mut lock = session::acquire(conn, request).await.unwrap();
        assert_eq!(held(&db).await, i64::from(KEYS));
        let acquired = lock.info();
        acquired.check(lock.conn()).await.unwrap();
        lock.finish(Ok::<_, Error>(())).await.unwrap();
        assert_eq!(held(&db).await, 0);
    }
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        for request in requests() {
            let lock = xact::begin(conn, request.isolation(isolation)).await;
            let lock = lock.unwrap();
            assert_eq!(held(&db).await, i64::from(KEYS));
            lock.finish(Ok::<_, Error>(())).await.unwrap();
            assert_eq!(held(&db).await, 0);
        }
    }
    drop(session::acquire(conn, many()).await.unwrap());
    db.until_no_locks().await;
    assert_closed(conn, "thousands of keys").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_keys_of_a_blocking_session_are_released() {
    let db = database().await;
    let mut conn = db.establish();
    for request in requests() {
        let mut lock = blocking::session::acquire(&mut conn, request.clone()).unwrap();
        assert_eq!(held(&db).await, i64::from(KEYS));
        let acquired = lock.info();
        acquired.check(lock.conn()).unwrap();
        lock.finish(Ok::<_, Error>(())).unwrap();
        assert_eq!(held(&db).await, 0);
        drop(blocking::session::acquire(&mut conn, request).unwrap());
        assert_eq!(held(&db).await, 0);
    }
    drop(blocking::session::acquire(&mut conn, 1).unwrap());
}

/// Every second one is released, also those after the one that was lost.
#[tokio::test]
async fn of_thousands_of_keys_one_that_was_lost_is_reported() {
    let db = database().await;
    let mut conn = db.connect().await;
    let mut lock = session::acquire(&mut conn, many()).await.unwrap();
    advisory_tests::bookings::run(lock.conn(), "SELECT pg_advisory_unlock(2)").await;
    let acquired = lock.info();
    assert_error!(acquired.check(lock.conn()).await, LockLost);
    let error = lock.finish(Ok::<_, Error>(())).await;
    assert_error!(error, LockLost);
    assert_eq!(held(&db).await, 0);
    let again = session::acquire(&mut conn, 1).await.unwrap();
    again.finish(Ok::<_, Error>(())).await.unwrap();
}
