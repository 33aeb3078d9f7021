use advisory_runtime::{Error, Key, advisory_lock, lock_key, xact};
use advisory_tests::Database;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::BigInt;
use diesel::{PgConnection, QueryResult, RunQueryDsl};
use std::sync::Arc;

const BOOKED: &str = "SELECT count(*) FROM booking WHERE room = 7";

async fn database() -> Database {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8)").await;
    db
}

struct Bookings {
    pool: Pool<ConnectionManager<PgConnection>>,
}

crate::guide::page!("connections", 8);

#[tokio::test]
async fn a_dropped_caller_stops_nothing_and_the_wait_has_an_end() {
    let db = database().await;
    let room = 7;
    let key = lock_key!("room:<room: int>", name = "room");
    let Key::BigInt(number) = key else {
        unreachable!("a pattern has a number")
    };
    let bookings = Arc::new(Bookings { pool: db.r2d2(1) });
    let mut holder = db.connect().await;
    let held = xact::begin(&mut holder, key).await.unwrap();
    let error = handler(bookings.clone(), room).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    held.finish(Ok::<_, Error>(())).await.unwrap();
    // If the machine is suspended for two seconds, the wait ends before its caller is dropped.
    for round in 1.. {
        let held = xact::begin(&mut holder, key).await.unwrap();
        let mut caller = tokio::spawn(handler(bookings.clone(), room));
        let waits = tokio::select! {
            _ended = &mut caller => false,
            () = db.until_waiting(number) => true,
        };
        if waits {
            caller.abort();
            drop(caller.await);
        }
        held.finish(Ok::<_, Error>(())).await.unwrap();
        db.until_no_locks().await;
        if waits && db.count(BOOKED).await == 1 {
            break;
        }
        assert!(round < 20, "a dropped caller has stopped its call");
    }
}

mod on_its_own_thread {
    use super::*;

    crate::guide::page!("connections", 3);

    #[tokio::test]
    async fn a_call_works_on_a_connection_of_the_pool() {
        let db = database().await;
        let bookings = Bookings { pool: db.r2d2(1) };
        let calls = move || bookings.book(7).and_then(|_| bookings.book(7));
        tokio::task::spawn_blocking(calls).await.unwrap().unwrap();
        assert_eq!(db.count(BOOKED).await, 2);
        db.until_no_locks().await;
    }
}
