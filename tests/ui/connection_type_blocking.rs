use advisory_runtime::advisory_lock;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::{PgConnection, QueryResult};
use diesel_async::AsyncPgConnection;

type Conn<'a> = &'a PgConnection;

struct Request {
    db: String,
}

#[advisory_lock(key = "a")]
fn something_else(conn: &mut String) -> QueryResult<usize> {
    Ok(conn.len())
}

#[advisory_lock(key = "b")]
fn shared_by_an_alias(conn: Conn<'_>) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "c", conn = request.db)]
fn field(mut request: Request) -> QueryResult<usize> {
    Ok(request.db.len())
}

#[advisory_lock(key = "e", conn = pool.get())]
fn result(pool: &Pool<ConnectionManager<PgConnection>>) -> anyhow::Result<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "f")]
fn not_blocking(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

fn main() {}
