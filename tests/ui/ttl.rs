#![allow(unused, deprecated)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job", pool = pool, ttl = "forever")]
async fn run(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool, ttl = "0s")]
async fn ttl_is_zero(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
