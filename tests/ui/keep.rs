#![allow(unused, deprecated)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job", pool = pool, keep = "9000h")]
async fn run(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool, keep = "0s")]
async fn keep_is_zero(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
