#![deny(warnings)]
use advisory_runtime::{Error, Pool as _, advisory_lock};
use diesel::r2d2::{self, ConnectionManager};
use diesel::{PgConnection, QueryResult};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lock(key = "a")]
pub async fn parameter(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "b", pool = pool)]
pub async fn of_a_pool(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "c", pool = pool)]
pub fn of_a_blocking_pool(pool: &r2d2::Pool<ConnectionManager<PgConnection>>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "d", conn = pool.connection().await?, poll = "1s")]
pub async fn of_an_expression(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
    Ok(())
}

fn main() {}
