#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job", pool = &pool)]
async fn run(pool: Pool<AsyncPgConnection>) -> QueryResult<usize> {
    diesel_async::RunQueryDsl::execute(diesel::sql_query("UPDATE"), conn).await
}

#[advisory_lease(key = "other", pool = pool)]
async fn borrow(pool: &Pool<AsyncPgConnection>) -> QueryResult<usize> {
    use diesel_async::RunQueryDsl as _;
    let updated = diesel::sql_query("UPDATE").execute(conn).await?;
    Ok(updated)
}

fn main() {}
