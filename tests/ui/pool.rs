use advisory_runtime::{advisory_lease, advisory_lock};
use diesel::r2d2::{self, ConnectionManager};
use diesel::{PgConnection, QueryResult};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

struct Context {
    pool: Pool<AsyncPgConnection>,
}

#[advisory_lock(key = "a", pool = context)]
async fn something_else(context: &Context) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "e", pool = pool)]
async fn of_r2d2(pool: &r2d2::Pool<ConnectionManager<PgConnection>>) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "f", pool = pool)]
fn of_bb8_blocking(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lease(key = "h", pool = pool)]
async fn of_r2d2_for_a_lease(pool: &r2d2::Pool<ConnectionManager<PgConnection>>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
