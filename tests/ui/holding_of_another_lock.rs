#![allow(unused)]
use advisory_runtime::{Holding, LockKey, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(LockKey)]
#[lock_key("slot:<room>")]
struct SlotLock {
    room: i64,
}

async fn insert(_: &mut AsyncPgConnection, _: Holding<'_, SlotLock>) -> QueryResult<()> {
    Ok(())
}

#[derive(LockKey)]
#[lock_key("guest:<name>")]
struct GuestLock<'n> {
    name: &'n str,
}

#[advisory_lock(key = GuestLock { name }, handle = lock)]
async fn book(conn: &mut AsyncPgConnection, name: &str) -> QueryResult<()> {
    insert(conn, lock.holding()).await
}

fn main() {}
