#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lock(key = "job:<id>", scope = "lease", ttl = "60s", keep = "24h", on_done = Ok(()), pool = pool)]
async fn run(pool: &Pool<AsyncPgConnection>, id: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
