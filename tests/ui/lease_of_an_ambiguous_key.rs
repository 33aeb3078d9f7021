#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job:<name><suffix>", pool = pool)]
async fn run(pool: &Pool<AsyncPgConnection>, name: &str, suffix: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
