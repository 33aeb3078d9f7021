use advisory_runtime::{Error, Holding, Key, LockKey, advisory_lock, xact};
use advisory_tests::Database;
use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

crate::guide::runs_the_page!("holding", "holding.rs");

/// What one booking has to itself.
#[derive(LockKey)]
#[lock_key("slot:<room>:<hour>")]
struct SlotLock {
    room: i64,
    hour: i32,
}

/// Inserts a booking of the slot that is locked.
async fn insert_booking(
    conn: &mut AsyncPgConnection,
    slot: Holding<'_, SlotLock>,
    guest: &str,
) -> QueryResult<usize> {
    let SlotLock { room, hour } = slot.key();
    diesel::sql_query("INSERT INTO booking VALUES ($1, $2, $3)")
        .bind::<diesel::sql_types::BigInt, _>(room)
        .bind::<diesel::sql_types::Integer, _>(hour)
        .bind::<diesel::sql_types::Text, _>(guest)
        .execute(conn)
        .await
}

#[advisory_lock(key = SlotLock { room, hour }, handle = lock)]
async fn book(
    conn: &mut AsyncPgConnection,
    room: i64,
    hour: i32,
    guest: &str,
) -> QueryResult<usize> {
    insert_booking(conn, lock.holding(), guest).await
}

mod by_hand {
    use super::*;

    pub(super) async fn book(
        conn: &mut AsyncPgConnection,
        room: i64,
        hour: i32,
        guest: &str,
    ) -> QueryResult<usize> {
        let slot = SlotLock { room, hour };
        let mut guard = xact::begin(conn, &slot).await?;
        let (conn, slot) = guard.holding(&slot)?;
        let result = insert_booking(conn, slot, guest).await;
        guard.finish(result).await
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
        tokio::join!(
            book(&mut conn, 7, 9, "Ada"),
            by_hand::book(&mut other, 7, 9, "Grace")
        )
    });
    db.until_waiters(number, 2).await;
    let booked = "SELECT count(*) FROM booking WHERE room = 7 AND hour = 9";
    assert_eq!(db.count(booked).await, 0);
    held.finish(Ok::<_, Error>(())).await.unwrap();
    assert_eq!(booking.await.unwrap(), (Ok(1), Ok(1)));
    assert_eq!(db.count(booked).await, 2);
    db.until_no_locks().await;
}
