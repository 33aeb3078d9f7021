#![allow(unused)]
use advisory_runtime::{LockKey, advisory_lease};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[derive(LockKey)]
#[lock_key("report:<day>")]
struct ReportLock {
    day: i64,
}

#[advisory_lease(key = "report:<month>", pool = pool)]
async fn send(pool: &Pool<AsyncPgConnection>, month: u32) -> QueryResult<()> {
    Ok(())
}

fn main() {}
