//! Blocking Diesel: `on_held`, and what the handle says of a wait.

use advisory_runtime::blocking::{LockInfo, xact};
use advisory_runtime::{Key, advisory_lock};
use advisory_tests::blocking::{finish, held_by, insert, pid_of};
use advisory_tests::bookings::{committed, database, key_of};
use advisory_tests::futures::spawn_blocking;
use diesel::QueryResult;
use diesel::pg::PgConnection;
use std::time::Duration;

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
