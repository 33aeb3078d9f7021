#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;

#[advisory_lock(key = "job", queue = 64)]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", conn = pool.get().await?, queue = 0)]
async fn queue_is_not_a_number(pool: &Pool<AsyncPgConnection>) -> anyhow::Result<()> {
    Ok(())
}

#[advisory_lock(key = "job", conn = pool.get().await?, queue = 64, mode = "shared")]
async fn queue_of_readers(pool: &Pool<AsyncPgConnection>) -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
