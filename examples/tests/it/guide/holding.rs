use advisory_runtime::{Error, Holding, Key, LockKey, advisory_lock, xact};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

crate::guide::page!("holding", 1);

mod by_hand {
    use super::*;

    crate::guide::page!("holding", 2);

    pub(super) async fn call(conn: &mut AsyncPgConnection) -> QueryResult<usize> {
        book(conn, 7, 9, "Grace").await
    }
}

#[tokio::test]
async fn a_locked_row_is_inserted_when_the_lock_is_free() {
    let db = Database::create().await;
    db.run("CREATE TABLE booking (room int8, hour int4, guest text)")
        .await;
    let (mut holder, mut conn, mut other) =
        (db.connect().await, db.connect().await, db.connect().await);
    let slot = SlotLock { room: 7, hour: 9 };
    let Key::BigInt(number) = slot.key() else {
        unreachable!("a pattern has a number")
    };
    let held = xact::begin(&mut holder, &slot).await.unwrap();
    let booking = tokio::spawn(async move {
        tokio::join!(book(&mut conn, 7, 9, "Ada"), by_hand::call(&mut other))
    });
    db.until_waiters(number, 2).await;
    let booked = "SELECT count(*) FROM booking WHERE room = 7 AND hour = 9";
    assert_eq!(db.count(booked).await, 0);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(booking.await.unwrap(), (Ok(1), Ok(1)));
    assert_eq!(db.count(booked).await, 2);
    db.until_no_locks().await;
}
