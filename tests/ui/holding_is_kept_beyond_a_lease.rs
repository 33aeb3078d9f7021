#![allow(unused)]
use advisory_runtime::{Holding, LockKey, Pool, lease::{Error, Leases}, advisory_lock};
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

async fn book<P: Pool + Clone + Send + 'static>(leases: Leases<P>) -> Result<i64, Error> {
    let slot = SlotLock { room: 7 };
    let mut held = leases.acquire(&slot).await?;
    let kept = held.run_holding(&slot, |slot| std::future::ready(slot)).await?;
    held.finish(Ok::<_, Error>(())).await?;
    Ok(kept.key().room)
}

fn main() {}
