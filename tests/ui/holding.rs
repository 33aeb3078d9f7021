use advisory_runtime::{Holding, LockKey, advisory_lease, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[derive(LockKey)]
#[lock_key("slot:<room>")]
struct SlotLock {
    room: i64,
}

#[derive(LockKey)]
#[lock_key("guest:<name>")]
struct GuestLock<'n> {
    name: &'n str,
}

struct Slot {
    room: i64,
}

async fn insert(_: &mut AsyncPgConnection, _: Holding<'_, SlotLock>) -> QueryResult<()> {
    Ok(())
}

async fn asked_of_the_declared_lock(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    let slot = SlotLock { room };
    let slot = advisory_runtime::DeclaredLocks::witness(&slot, Default::default());
    insert(conn, slot).await
}

async fn made_by_hand(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    let slot = SlotLock { room };
    insert(conn, Holding { key: &slot }).await
}

async fn not_given(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    insert(conn).await
}

#[advisory_lock(key = "hall:<hall>", handle = lock)]
async fn of_a_key_pattern(conn: &mut AsyncPgConnection, hall: i64) -> QueryResult<()> {
    insert(conn, lock.holding()).await
}

#[advisory_lease(key = "wing:<wing>", pool = pool, handle = lock)]
async fn of_a_lease_on_a_key_pattern(pool: &Pool<AsyncPgConnection>, conn: &mut AsyncPgConnection, wing: i64) -> QueryResult<()> {
    insert(conn, lock.holding()).await
}

#[advisory_lock(key = SlotLock { room }, mode = "shared", handle = lock)]
async fn of_a_reader_given_to_a_writer(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    insert(conn, lock.holding()).await
}

async fn of_a_type_that_is_not_a_lock(_: &mut AsyncPgConnection, _: Holding<'_, Slot>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = GuestLock { name }, handle = lock)]
async fn of_another_lock(conn: &mut AsyncPgConnection, name: &str) -> QueryResult<()> {
    insert(conn, lock.holding()).await
}

fn main() {}
