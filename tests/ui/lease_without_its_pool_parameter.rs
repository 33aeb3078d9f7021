#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job")]
async fn run(db: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
