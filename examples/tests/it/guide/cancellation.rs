use advisory_runtime::{Error, Key, advisory_lock, lock_key, xact};
use advisory_tests::{Database, pid_of};
use diesel::sql_types::BigInt;
use diesel_async::pooled_connection::deadpool::Object;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use std::time::Duration;
use tokio::sync::Notify;

crate::guide::page!("cancellation", 1);

const OPENS: i64 = 7;
const STAYS_SHUT: i64 = 8;
const JAMS: i64 = 9;

static AT_THE_DOOR: Notify = Notify::const_new();

async fn open_the_door(room: i64) -> Result<(), Error> {
    if room == JAMS {
        AT_THE_DOOR.notify_one();
    }
    if room != OPENS {
        // Longer than the lock may be held.
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    Ok(())
}

/// How many attempts a busy machine has to run one round in time.
const ROUNDS: usize = 20;

#[tokio::test]
async fn a_bound_keeps_the_connection() {
    let db = database().await;
    let (mut holder, mut conn) = (db.connect().await, db.connect().await);
    let held = xact::begin(&mut holder, key(OPENS)).await.unwrap();
    let pid = pid_of(&mut conn).await;
    let error = book(&mut conn, OPENS).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert_eq!(pid_of(&mut conn).await, pid, "another session");
    held.finish(Ok::<_, Error>(())).await.unwrap();
    for round in 1.. {
        let mut conn = db.connect().await;
        let error = book(&mut conn, STAYS_SHUT).await.unwrap_err();
        assert!(matches!(error, Error::HoldExceeded { .. }), "{error:?}");
        if book(&mut conn, OPENS).await.is_ok() {
            break;
        }
        assert!(round < ROUNDS, "closed, and not by a slow rollback");
    }
    let booked = "SELECT count(*) * 10 + min(room) FROM booking";
    assert_eq!(db.count(booked).await, 10 + OPENS);
}

#[tokio::test]
async fn a_dropped_call_leaves_nothing_and_its_connection_is_replaced() {
    let db = database().await;
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key(OPENS)).await.unwrap();
    let Key::BigInt(number) = key(OPENS) else {
        unreachable!("a pattern has a number")
    };
    let pool = db.deadpool(1);
    let closed = async |mut conn: Object<AsyncPgConnection>| {
        let error = book(&mut conn, OPENS).await.unwrap_err();
        assert!(matches!(error, Error::BrokenConnection { .. }), "{error:?}");
    };
    // While it waits, and in its body.
    for round in 1.. {
        let mut conn = pool.get().await.unwrap();
        tokio::select! {
            ended = book(&mut conn, OPENS) => assert!(round < ROUNDS, "{ended:?}"),
            () = db.until_waiting(number) => {
                closed(conn).await;
                break;
            }
        }
    }
    for round in 1.. {
        let mut conn = pool.get().await.unwrap();
        tokio::select! {
            ended = book(&mut conn, JAMS) => assert!(round < ROUNDS, "{ended:?}"),
            () = AT_THE_DOOR.notified() => {
                closed(conn).await;
                break;
            }
        }
    }
    db.until_no_waiters(number).await;
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_no_locks().await;
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 0);
    book(&mut pool.get().await.unwrap(), OPENS).await.unwrap();
    assert_eq!(db.count("SELECT count(*) FROM booking").await, 1);
}

async fn database() -> Database {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8)").await;
    db
}

fn key(room: i64) -> Key {
    lock_key!("room:<room: int>", name = "room")
}
