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

async fn book(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    let slot = SlotLock { room };
    let slot = advisory_runtime::DeclaredLocks::witness(&slot, Default::default());
    insert(conn, slot).await
}

fn main() {}
