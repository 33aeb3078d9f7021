#![allow(unused, deprecated)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = ["job:<id>", "job:<other>"], pool = pool)]
async fn run(pool: &Pool<AsyncPgConnection>, id: i64, other: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = (7, "job:<id>"), pool = pool)]
async fn lease_of_a_pair(pool: &Pool<AsyncPgConnection>, id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job:<ids*>", pool = pool, max_keys = 8)]
async fn lease_of_a_slice(pool: &Pool<AsyncPgConnection>, ids: &[i64]) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job:<name><suffix>", pool = pool)]
async fn lease_of_an_ambiguous_key(pool: &Pool<AsyncPgConnection>, name: &str, suffix: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(keys = ["job:<from>", "job:<to>"], pool = pool)]
async fn lease_of_several_keys(pool: &Pool<AsyncPgConnection>, from: i64, to: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool)]
fn lease_of_a_blocking_function(pool: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
