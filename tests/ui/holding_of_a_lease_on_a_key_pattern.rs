#![allow(unused)]
use advisory_runtime::{Holding, LockKey, advisory_lease};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[derive(LockKey)]
#[lock_key("slot:<room>")]
struct SlotLock {
    room: i64,
}

async fn insert(_: &mut AsyncPgConnection, _: Holding<'_, SlotLock>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "hall:<hall>", pool = pool, handle = lock)]
async fn book(pool: &Pool<AsyncPgConnection>, conn: &mut AsyncPgConnection, hall: i64) -> QueryResult<()> {
    insert(conn, lock.holding()).await
}

fn main() {}
