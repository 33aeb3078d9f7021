#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job:<ids*>", pool = pool, max_keys = 8)]
async fn run(pool: &Pool<AsyncPgConnection>, ids: &[i64]) -> QueryResult<()> {
    Ok(())
}

fn main() {}
