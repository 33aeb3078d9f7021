#![allow(unused, deprecated)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job", pool = pool, renew = "0s")]
async fn run(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool, renew = 20)]
async fn renew_without_a_unit(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool, renew = "2m")]
async fn lease_renewed_later_than_the_default(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool, ttl = "30s", renew = "30s")]
async fn lease_renewed_too_late(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
