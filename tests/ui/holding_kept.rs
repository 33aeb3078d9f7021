use advisory_runtime::lease::Leases;
use advisory_runtime::{Error, Holding, LockKey, Pool, advisory_lock, lease, xact};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(LockKey)]
#[lock_key("slot:<room>")]
struct SlotLock {
    room: i64,
}

async fn beyond_a_lease<P: Pool + Clone + Send + 'static>(leases: Leases<P>) -> Result<i64, lease::Error> {
    let slot = SlotLock { room: 7 };
    let mut held = leases.acquire(&slot).await?;
    let kept = held.run_holding(&slot, |slot| std::future::ready(slot)).await?;
    held.finish(Ok::<_, lease::Error>(())).await?;
    Ok(kept.key().room)
}

async fn beyond_finish(conn: &mut AsyncPgConnection) -> Result<i64, Error> {
    let slot = SlotLock { room: 7 };
    let mut held = xact::begin(conn, &slot).await?;
    let (_, slot) = held.holding(&slot)?;
    held.finish(Ok::<_, Error>(())).await?;
    Ok(slot.key().room)
}

#[advisory_lock(key = SlotLock { room }, handle = lock)]
async fn beyond_the_body<'k>(conn: &mut AsyncPgConnection, room: i64, kept: &mut Option<Holding<'k, SlotLock>>) -> QueryResult<()> {
    *kept = Some(lock.holding());
    _ = conn;
    Ok(())
}

#[advisory_lock(key = SlotLock { room }, handle = lock)]
async fn by_a_task(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    tokio::spawn(async move { lock.holding().key().room });
    _ = conn;
    Ok(())
}

fn main() {}
