//! Witnesses of locks: each contains the locked values, and while a body has one the server holds
//! its lock.

use advisory_runtime::lease::{self, InMemory, Leases};
use advisory_runtime::{
    Error, Holding, Key, LockKey, Request, Shared, advisory_lease, advisory_lock, blocking,
    session, testing, xact,
};
use advisory_tests::bookings::{bookings, database, insert};
use advisory_tests::{Database, LockedKey, assert_matches};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq, LockKey)]
#[lock_key("witness-slot:<room>")]
struct SlotLock {
    room: i64,
}

#[derive(LockKey)]
#[lock_key("witness-guest:<name>")]
struct GuestLock<'n> {
    name: &'n str,
}

async fn is_held(db: &Database, lock: &SlotLock) -> bool {
    let locks = db.locks().await;
    let key = LockedKey::Bigint(match lock.key() {
        Key::BigInt(number) => number,
        key @ Key::IntInt(..) => unreachable!("a number: {key}"),
    });
    let granted: Vec<bool> = locks
        .iter()
        .filter(|lock| lock.key == key)
        .map(|lock| lock.granted)
        .collect();
    granted == [true]
}

async fn book(
    conn: &mut AsyncPgConnection,
    slot: Holding<'_, SlotLock>,
    guest: &str,
) -> QueryResult<usize> {
    insert(conn, slot.key().room, guest).await
}

async fn count(
    conn: &mut AsyncPgConnection,
    slot: Holding<'_, Shared<SlotLock>>,
) -> QueryResult<i64> {
    bookings(conn, slot.key().room).await
}

#[advisory_lock(key = SlotLock { room }, handle = lock)]
async fn book_one(conn: &mut AsyncPgConnection, db: &Database, room: i64) -> QueryResult<bool> {
    let slot = lock.holding();
    book(conn, slot, "ada").await?;
    Ok(is_held(db, slot.key()).await && lock.key() == slot.key().key())
}

#[tokio::test]
async fn a_witness_is_of_the_lock_that_the_server_holds() {
    let db = database().await;
    let mut conn = db.connect().await;
    assert_eq!(book_one(&mut conn, &db, 7).await, Ok(true));
    assert_eq!(bookings(&mut conn, 7).await, Ok(1));
    db.until_quiet().await;
}

#[tokio::test]
async fn several_keys_give_a_witness_each_in_the_order_written() {
    #[advisory_lock(keys = [SlotLock { room: from }, "witness-moved:<from>", GuestLock { name }, SlotLock { room: to }], handle = lock)]
    async fn several(
        conn: &mut AsyncPgConnection,
        from: i64,
        to: i64,
        name: &str,
    ) -> QueryResult<(i64, String, i64)> {
        let (from, guest, to) = lock.holding();
        book(conn, from, guest.key().name).await?;
        assert_eq!(lock.keys().len(), 4);
        Ok((from.key().room, guest.key().name.to_owned(), to.key().room))
    }
    #[advisory_lock(keys = rooms.iter().map(|room| SlotLock { room: *room }), handle = lock)]
    async fn many(conn: &mut AsyncPgConnection, rooms: &[i64]) -> QueryResult<Vec<i64>> {
        for slot in lock.holding() {
            book(conn, slot, "ada").await?;
        }
        assert!(
            lock.holding()
                .all(|slot| lock.keys().contains(&slot.key().key()))
        );
        Ok(lock.holding().map(|slot| slot.key().room).collect())
    }
    let db = database().await;
    let mut conn = db.connect().await;
    let given = several(&mut conn, 9, 3, "ada").await;
    assert_eq!(given, Ok((9, "ada".to_owned(), 3)));
    assert_eq!(many(&mut conn, &[8, 2, 5]).await, Ok(vec![8, 2, 5]));
    assert_eq!(bookings(&mut conn, 5).await, Ok(1));
}

#[tokio::test]
async fn a_shared_lock_is_a_readers_witness_an_exclusive_one_both() {
    #[advisory_lock(key = SlotLock { room }, mode = "shared", scope = "session", handle = lock)]
    async fn read(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i64> {
        count(conn, lock.holding()).await
    }
    #[advisory_lock(key = SlotLock { room }, handle = lock)]
    async fn write_and_read(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i64> {
        book(conn, lock.holding(), "ada").await?;
        count(conn, lock.holding().shared()).await
    }
    let db = database().await;
    let mut conn = db.connect().await;
    assert_eq!(read(&mut conn, 7).await, Ok(0));
    assert_eq!(write_and_read(&mut conn, 7).await, Ok(1));
}

#[tokio::test]
async fn a_guard_gives_witnesses_of_its_own_keys_only() {
    let db = database().await;
    let mut conn = db.connect().await;
    let (slot, other) = (SlotLock { room: 7 }, SlotLock { room: 8 });

    let mut held = xact::begin(&mut conn, &slot).await.unwrap();
    for refused in [
        held.holding(&other).err(),
        held.holding(&[slot, other]).err(),
    ] {
        assert_matches!(
            &refused,
            Some(Error::NotHeld { lock, .. }) if lock == "witness-slot:<room>"
        );
    }
    let (conn_under_it, witness) = held.holding(&slot).unwrap();
    assert_eq!(book(conn_under_it, witness, "ada").await, Ok(1));
    assert!(is_held(&db, witness.key()).await);
    held.finish(Ok::<_, Error>(())).await.unwrap();

    let request = Request::all([slot, other]).shared();
    let mut held = session::acquire(&mut conn, request).await.unwrap();
    let refused = held.holding(&slot).err();
    assert_matches!(refused, Some(Error::NotHeld { .. }));
    let locks = [other, slot];
    let (conn_under_it, [second, first]) = held.holding_shared(&locks).unwrap();
    assert_eq!((first.key(), second.key()), (&slot, &other));
    assert_eq!(count(conn_under_it, first).await, Ok(1));
    held.finish(Ok::<_, Error>(())).await.unwrap();

    // The number is locked, whichever way it was requested.
    let mut held = xact::begin(&mut conn, slot.key()).await.unwrap();
    assert!(held.holding(&slot).is_ok());
    held.finish(Ok::<_, Error>(())).await.unwrap();
    db.until_quiet().await;
}

#[tokio::test]
async fn blocking_locks_lend_witnesses_too() {
    fn room_of(slot: Holding<'_, SlotLock>) -> i64 {
        slot.key().room
    }
    #[advisory_lock(key = slot, handle = lock)]
    fn blocking_book(conn: &mut diesel::PgConnection, slot: &SlotLock) -> QueryResult<i64> {
        _ = conn;
        Ok(room_of(lock.holding()))
    }
    let db = database().await;
    let mut conn = db.establish();
    let slot = SlotLock { room: 7 };
    assert_eq!(blocking_book(&mut conn, &slot), Ok(7));
    let mut held = blocking::xact::begin(&mut conn, slot).unwrap();
    let refused = held.holding(&SlotLock { room: 8 }).err();
    assert_matches!(refused, Some(Error::NotHeld { .. }));
    assert_eq!(
        held.holding(&slot).map(|(_, slot)| room_of(slot)).ok(),
        Some(7)
    );
    held.finish(Ok::<_, Error>(())).unwrap();
}

#[tokio::test]
async fn a_lease_gives_its_body_a_witness() {
    fn room_of(slot: Holding<'_, SlotLock>) -> i64 {
        slot.key().room
    }
    #[advisory_lease(key = SlotLock { room }, pool = leases, handle = lease)]
    async fn leased(leases: &Leases<InMemory>, room: i64) -> Result<(i64, bool), Error> {
        Ok((room_of(lease.holding()), lease.is_held()))
    }
    let leases = Leases::in_memory();
    assert_eq!(leased(&leases, 7).await.unwrap(), (7, true));
}

#[tokio::test]
async fn a_lease_by_hand_gives_a_witness_of_its_own_key_only() {
    let leases = Leases::in_memory();
    let slot = SlotLock { room: 7 };
    let mut held = leases.acquire(slot).await.unwrap();
    let ran = AtomicBool::new(false);
    let other = SlotLock { room: 8 };
    let refused = held
        .run_holding(&other, |_| async { ran.store(true, Ordering::Relaxed) })
        .await;
    assert_matches!(refused, Err(lease::Error::NotHeld { .. }));
    assert!(!ran.load(Ordering::Relaxed));
    let room = held
        .run_holding(&slot, |slot| async move { slot.key().room })
        .await;
    assert_eq!(room.unwrap(), 7);
    held.finish(Ok::<_, lease::Error>(())).await.unwrap();
}

#[test]
fn a_unit_test_needs_no_database() {
    let slot = SlotLock { room: 7 };
    let reference = &slot;
    let writes = testing::holding(&slot);
    let reads = testing::holding(&reference).shared();
    assert_eq!((writes.key(), reads.key()), (&slot, &slot));
    assert_eq!(
        format!("{writes:?} {reads:?}"),
        "Holding(\"witness-slot:<room>\") Holding(\"witness-slot:<room>\")"
    );
    assert_eq!(size_of_val(&writes), size_of::<&SlotLock>());
}
