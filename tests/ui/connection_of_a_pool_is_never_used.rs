#![deny(deprecated)]
use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;

#[advisory_lock(key = "job", conn = pool.get().await?)]
async fn run(pool: &Pool<AsyncPgConnection>) -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
