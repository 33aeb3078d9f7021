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

#[advisory_lock(key = SlotLock { room }, mode = "shared", handle = lock)]
async fn book(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    insert(conn, lock.holding()).await
}

fn main() {}
