#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;

#[advisory_lock(key = "job", conn = pool.get().await?, queue = 0)]
async fn run(pool: &Pool<AsyncPgConnection>) -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
