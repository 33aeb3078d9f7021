#![allow(unused, deprecated)]
use advisory_runtime::{advisory_lease, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lock(key = "report:<day>", name = "report")]
async fn write(conn: &mut AsyncPgConnection, day: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "report:<day>", name = "report", pool = pool)]
async fn send(pool: &Pool<AsyncPgConnection>, day: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
