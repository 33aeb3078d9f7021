#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job", pool = pool, conn = conn)]
async fn run(conn: &mut AsyncPgConnection, pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
