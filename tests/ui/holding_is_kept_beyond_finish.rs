#![allow(unused)]
use advisory_runtime::{Holding, LockKey, Error, xact, advisory_lock};
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

async fn book(conn: &mut AsyncPgConnection) -> Result<i64, Error> {
    let slot = SlotLock { room: 7 };
    let mut held = xact::begin(conn, &slot).await?;
    let (_, slot) = held.holding(&slot)?;
    held.finish(Ok::<_, Error>(())).await?;
    Ok(slot.key().room)
}

fn main() {}
