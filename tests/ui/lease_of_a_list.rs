#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = ["job:<id>", "job:<other>"], pool = pool)]
async fn run(pool: &Pool<AsyncPgConnection>, id: i64, other: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
