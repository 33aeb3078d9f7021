#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(keys = ["job:<from>", "job:<to>"], pool = pool)]
async fn run(pool: &Pool<AsyncPgConnection>, from: i64, to: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
