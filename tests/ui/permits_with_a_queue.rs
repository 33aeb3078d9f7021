#![allow(unused)]
use advisory_runtime::{Error, Pool as _, advisory_lock};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lock(key = "job", permits = 3, poll = "1s", queue = 8, conn = pool.connection().await?)]
async fn run(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
    Ok(())
}

fn main() {}
