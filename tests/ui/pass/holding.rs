//! Functions that take a witness, and every way to give it to them, under the strictest lints.
#![forbid(unsafe_code)]
#![deny(warnings)]
#![warn(let_underscore_drop, unused_qualifications)]
#![allow(dead_code, reason = "what is tested here is that it compiles")]

use advisory_runtime::lease::{self, Leases};
use advisory_runtime::{Error, Holding, LockKey, Pool, Request, Shared, advisory_lease, advisory_lock, blocking, session, testing, xact};
use diesel::{PgConnection, QueryResult};
use diesel_async::pooled_connection::bb8;
use diesel_async::{AsyncPgConnection, RunQueryDsl};

#[derive(LockKey)]
#[lock_key("slot:<room>")]
struct SlotLock {
    room: i64,
}

/// Without `Copy` and with a borrow.
#[derive(LockKey)]
#[lock_key("guest:<name>")]
struct GuestLock<'n> {
    name: &'n str,
}

async fn write(conn: &mut AsyncPgConnection, slot: Holding<'_, SlotLock>) -> QueryResult<usize> {
    diesel::sql_query("INSERT")
        .bind::<diesel::sql_types::BigInt, _>(slot.key().room)
        .execute(conn)
        .await
}

async fn read(_: &mut AsyncPgConnection, slot: Holding<'_, Shared<SlotLock>>) -> QueryResult<i64> {
    Ok(slot.key().room)
}

#[advisory_lock(key = SlotLock { room }, handle = lock)]
async fn one(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<usize> {
    let slot = lock.holding();
    read(conn, slot.shared()).await?;
    write(conn, slot).await?;
    assert_eq!(lock.keys(), [slot.key().key()]);
    write(conn, slot).await
}

#[advisory_lock(key = slot, handle = lock, scope = "session", wait = "5s", on_held = Ok(0), max_hold = "5s")]
async fn by_reference(conn: &mut AsyncPgConnection, slot: &SlotLock) -> QueryResult<usize> {
    write(conn, lock.holding()).await
}

#[advisory_lock(key = SlotLock { room }, handle = lock, mode = "shared")]
async fn reader(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<i64> {
    read(conn, lock.holding()).await
}

#[advisory_lock(keys = [SlotLock { room }, GuestLock { name: &name }], handle = lock)]
async fn two(conn: &mut AsyncPgConnection, room: i64, name: String) -> QueryResult<usize> {
    let (slot, guest) = lock.holding();
    assert_eq!(guest.key().name, name);
    write(conn, slot).await
}

#[advisory_lock(keys = [SlotLock { room: from }, "moved:<from>", SlotLock { room: to }], mode = "shared", handle = lock)]
async fn beside_a_pattern(conn: &mut AsyncPgConnection, from: i64, to: i64) -> QueryResult<i64> {
    let (from, to) = lock.holding();
    Ok(read(conn, from).await? + read(conn, to).await?)
}

#[advisory_lock(keys = ["halls:<halls*>", SlotLock { room }], handle = lock)]
async fn beside_a_slice(conn: &mut AsyncPgConnection, halls: &[i64], room: i64) -> QueryResult<usize> {
    write(conn, lock.holding()).await
}

#[advisory_lock(keys = rooms.iter().map(|room| SlotLock { room: *room }), handle = lock)]
async fn many(conn: &mut AsyncPgConnection, rooms: &[i64]) -> QueryResult<usize> {
    let mut rows = 0;
    for slot in lock.holding() {
        rows += write(conn, slot).await?;
    }
    Ok(rows)
}

struct Slots {
    pool: bb8::Pool<AsyncPgConnection>,
}

impl Slots {
    #[advisory_lock(key = SlotLock { room }, conn = self.pool.get().await?, queue = 4, handle = lock)]
    async fn pooled(&self, room: i64) -> anyhow::Result<usize> {
        Ok(write(&mut conn, lock.holding()).await?)
    }

    /// Of a lease the body has the lease too.
    #[advisory_lease(key = SlotLock { room }, pool = self.pool, handle = lock)]
    async fn leased(&self, room: i64) -> Result<i64, lease::Error> {
        let lease: lease::Lease = lock.clone();
        assert!(lease.is_held());
        Ok(lock.holding().key().room + lock.token().get())
    }
}

fn write_blocking(_: &mut PgConnection, slot: Holding<'_, SlotLock>) -> QueryResult<i64> {
    Ok(slot.key().room)
}

#[advisory_lock(key = SlotLock { room }, handle = lock)]
fn blocking_one(conn: &mut PgConnection, room: i64) -> QueryResult<i64> {
    write_blocking(conn, lock.holding())
}

async fn by_hand(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    let slot = SlotLock { room: 7 };
    let mut held = xact::begin(conn, &slot).await?;
    let (conn, slot) = held.holding(&slot)?;
    write(conn, slot).await?;
    held.finish(Ok(())).await
}

async fn several_by_hand(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    let slots = [SlotLock { room: 7 }, SlotLock { room: 8 }];
    let mut held = session::acquire(conn, Request::all(&slots).shared()).await?;
    let (conn, [first, second]) = held.holding_shared(&slots)?;
    read(conn, first).await?;
    read(conn, second).await?;
    held.finish(Ok(())).await
}

fn blocking_by_hand(conn: &mut PgConnection, slots: Vec<SlotLock>) -> Result<(), Error> {
    let mut held = blocking::session::acquire(conn, Request::all(&slots))?;
    let (conn, slots) = held.holding(&slots)?;
    for slot in slots {
        write_blocking(conn, slot)?;
    }
    held.finish(Ok(()))
}

async fn lease_by_hand<P: Pool + Clone + Send + 'static>(leases: Leases<P>) -> Result<(), lease::Error> {
    let slot = SlotLock { room: 7 };
    let mut held = leases.acquire(&slot).await?;
    let body = |slot: Holding<'_, SlotLock>| std::future::ready(Ok::<_, lease::Error>(slot.key().room));
    let result = held.run_holding(&slot, body).await?;
    held.finish(result).await.map(drop)
}

/// A body that has the word and not the handle's method, under a number.
#[advisory_lock(key = 42, handle = lock)]
async fn word(conn: &mut AsyncPgConnection) -> QueryResult<usize> {
    let holding = lock.waited().subsec_nanos();
    diesel::sql_query("SELECT 1").execute(conn).await.map(|rows| rows + holding as usize)
}

fn main() {
    // A reference and no more.
    assert_eq!(size_of::<Holding<'_, SlotLock>>(), size_of::<&SlotLock>());
    let slot = SlotLock { room: 7 };
    assert_eq!(testing::holding(&slot).shared().key().room, 7);
    assert_eq!(format!("{:?}", testing::holding(&slot)), "Holding(\"slot:<room>\")");
}
