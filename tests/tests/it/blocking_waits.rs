//! Blocking Diesel: how long a call waits, the error for each end of a wait, and `on_held`.

use crate::blocking_calls::book;
use advisory_runtime::blocking::{LockInfo, xact};
use advisory_runtime::{Error, Key, advisory_lock};
use advisory_tests::blocking::{execute, finish, held_by, insert, pid_of};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::{assert_error, assert_matches};
use diesel::QueryResult;
use diesel::pg::PgConnection;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tokio::task::spawn_blocking;

const SHORT: Duration = Duration::from_millis(30);

#[advisory_lock(key = "room:<room>", name = "room", wait = wait)]
fn within(conn: &mut PgConnection, room: i64, wait: Duration) -> Result<usize, Error> {
    Ok(insert(conn, room, "Ada")?)
}

#[advisory_lock(key = "room:<room>", name = "room", wait = "forever")]
fn forever(conn: &mut PgConnection, room: i64) -> Result<usize, Error> {
    Ok(insert(conn, room, "Ada")?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_wait_and_a_statement_timeout_are_not_busy() {
    let db = database().await;
    let (mut holder, mut conn) = (db.establish(), db.establish());
    let held = xact::begin(&mut holder, key_of(7)).unwrap();
    let pid = pid_of(&mut conn);
    let waiter = spawn_blocking(move || {
        let end = within(&mut conn, 7, Duration::from_secs(60));
        (end, conn)
    });
    db.until_waiting(key_of(7)).await;
    db.run(&format!("SELECT pg_cancel_backend({pid})")).await;
    let (end, mut conn) = waiter.await.unwrap();
    let error = end.unwrap_err();
    assert!(
        matches!(&error, Error::Cancelled { .. }) && !error.is_busy(),
        "{error:?}"
    );
    execute(&mut conn, "SET statement_timeout = '500ms'").unwrap();
    assert_error!(forever(&mut conn, 7), Cancelled);
    execute(&mut conn, "RESET statement_timeout").unwrap();
    finish(held);
    assert_eq!(forever(&mut conn, 7).unwrap(), 1);
    db.until_quiet().await;
}

/// Each holds one lock and requests the other's.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_has_its_own_error_and_the_other_call_continues() {
    #[advisory_lock(key = "room:<first>", name = "room")]
    fn both(conn: &mut PgConnection, first: i64, second: i64, meet: &Barrier) -> Result<(), Error> {
        meet.wait();
        book(conn, second, "Ada")?;
        Ok(())
    }
    let db = database().await;
    let meet = Arc::new(Barrier::new(2));
    let threads = [(1, 2), (2, 1)].map(|(first, second)| {
        let (mut conn, meet) = (db.establish(), Arc::clone(&meet));
        spawn_blocking(move || both(&mut conn, first, second, &meet))
    });
    let mut ends = Vec::new();
    for thread in threads {
        ends.push(thread.await.unwrap());
    }
    ends.sort_by_key(Result::is_ok);
    assert_matches!(&*ends, [Err(Error::Deadlock { lock, .. }), Ok(())] if lock == "room:<room>");
    db.until_quiet().await;
}

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

#[tokio::test(flavor = "multi_thread")]
async fn the_handle_says_which_keys_and_how_long_it_waited() {
    #[advisory_lock(keys = ["room:<one>", "room:<two>"], name = "room", handle = lock)]
    fn which(conn: &mut PgConnection, one: i64, two: i64) -> QueryResult<LockInfo> {
        assert_eq!(held_by(conn)?, 2);
        Ok(lock)
    }
    let db = database().await;
    let (mut holder, mut conn) = (db.establish(), db.establish());
    let held = xact::begin(&mut holder, key_of(7)).unwrap();
    let waiter = spawn_blocking(move || which(&mut conn, 8, 7));
    db.until_waiting(key_of(7)).await;
    // The handle has to report the time that has passed.
    db.run("SELECT pg_sleep(0.02)").await;
    finish(held);
    let acquired = waiter.await.unwrap().unwrap();
    let mut keys = [key_of(7), key_of(8)].map(Key::BigInt);
    keys.sort_unstable();
    assert_eq!(acquired.keys(), keys);
    assert_eq!(acquired.key(), keys[0]);
    assert!(acquired.waited() >= Duration::from_millis(20));
}
