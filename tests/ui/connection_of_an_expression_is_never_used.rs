#![deny(warnings)]
#![allow(dead_code)]
use advisory_runtime::{Error, Pool as _, advisory_lock};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lock(key = "job", conn = pool.connection().await?, poll = "1s")]
async fn run(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
    Ok(())
}

fn main() {}
