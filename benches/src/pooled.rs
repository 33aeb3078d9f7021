//! Calls that get their connection from a pool, with the queue and without.

use crate::rivals::diesel_async::one;
use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool;
use std::time::{Duration, Instant};

pub(crate) type Pool = deadpool::Pool<AsyncPgConnection>;
type Error = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn pool(url: &str, size: usize) -> Result<Pool, deadpool::BuildError> {
    let manager = AsyncDieselConnectionManager::new(url);
    deadpool::Pool::builder(manager).max_size(size).build()
}

#[advisory_lock(key = "bench-pooled:<number>", conn = pool.get().await?)]
pub(crate) async fn once(pool: &Pool, number: i64) -> Result<i32, Error> {
    Ok(one(conn).await?)
}

/// The time until the lock was held.
#[advisory_lock(key = "bench-hot", name = "hot", conn = pool.get().await?)]
pub(crate) async fn hot(pool: &Pool, started: Instant) -> Result<Duration, Error> {
    let waited = started.elapsed();
    one(conn).await?;
    Ok(waited)
}

#[advisory_lock(key = "bench-hot", name = "hot", conn = pool.get().await?, queue = 1_000)]
pub(crate) async fn hot_queued(pool: &Pool, started: Instant) -> Result<Duration, Error> {
    let waited = started.elapsed();
    one(conn).await?;
    Ok(waited)
}
