use advisory_runtime::{Error, Key, advisory_lock, lock_key, xact};
use advisory_tests::{Database, pid_of};
use diesel::sql_types::BigInt;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::time::Duration;
use tokio::time::timeout;

crate::guide::runs_the_page!("cancellation", "cancellation.rs");

/// Waits for at most one second, and runs for at most two. The connection stays usable either way,
/// unless a statement is running when the two seconds are over.
#[advisory_lock(key = "room:<room>", name = "room", wait = "1s", max_hold = "2s")]
async fn book(conn: &mut AsyncPgConnection, room: i64) -> Result<(), Error> {
    let insert = diesel::sql_query("INSERT INTO booking VALUES ($1)");
    insert.bind::<BigInt, _>(room).execute(conn).await?;
    open_the_door(room).await
}

const OPENS: i64 = 7;
const STAYS_SHUT: i64 = 8;

async fn open_the_door(room: i64) -> Result<(), Error> {
    if room == STAYS_SHUT {
        // Longer than the lock may be held.
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_bound_keeps_the_connection_and_a_time_out_around_the_call_closes_it() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8)").await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let room = OPENS;
    let key = lock_key!("room:<room: int>", name = "room");
    let Key::BigInt(number) = key else {
        unreachable!("a pattern has a number")
    };
    let held = xact::begin(&mut holder, key).await.unwrap();
    let pid = pid_of(&mut conn).await;
    let error = book(&mut conn, OPENS).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    let error = book(&mut conn, STAYS_SHUT).await.unwrap_err();
    assert!(matches!(error, Error::HoldExceeded { .. }), "{error:?}");
    assert_eq!(pid_of(&mut conn).await, pid, "another session");

    let pool = db.deadpool(1);
    let briefly = Duration::from_millis(200);
    for room in [OPENS, STAYS_SHUT] {
        let mut conn = pool.get().await.unwrap();
        assert!(timeout(briefly, book(&mut conn, room)).await.is_err());
        let error = book(&mut conn, room).await.unwrap_err();
        assert!(matches!(error, Error::BrokenConnection { .. }), "{error:?}");
    }
    db.until_no_waiters(number).await;
    xact::finish(held, Ok::<_, Error>(())).await.unwrap();
    db.until_no_locks().await;
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 0);
    book(&mut pool.get().await.unwrap(), OPENS).await.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 1);
}
