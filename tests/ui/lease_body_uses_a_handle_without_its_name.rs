#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job", pool = pool, keep = "24h")]
async fn run(pool: &Pool<AsyncPgConnection>, conn: &mut AsyncPgConnection) -> Result<(), advisory_runtime::lease::Error> {
    lease.complete(conn).await
}

fn main() {}
