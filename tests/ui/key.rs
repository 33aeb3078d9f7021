use advisory_runtime::lease::{self, Leases};
use advisory_runtime::{Error, LockKey, advisory_lock, blocking, session, xact};
use diesel::{PgConnection, QueryResult};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lock(scope = "xact")]
async fn is_missing(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock("job")]
async fn has_no_name(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "")]
async fn is_empty(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "a", keys = ["b", "c"])]
async fn is_given_twice(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = concat!("a", "b"))]
async fn is_a_macro(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = account:<id>)]
async fn is_a_pattern_without_quotes(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = <tenant_id>:<date>, wait = "5s")]
async fn starts_with_a_placeholder_without_quotes(conn: &mut AsyncPgConnection, tenant_id: i64, date: i64) -> QueryResult<()> {
    Ok(())
}

#[derive(LockKey)]
#[lock_key(room:<id>)]
struct RoomLock {
    id: i64,
}

#[advisory_lock(key = name)]
async fn is_a_text(conn: &mut AsyncPgConnection, name: &str) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

async fn is_a_text_in_a_transaction(conn: &mut AsyncPgConnection) -> Result<(), Error> {
    xact::lock(conn, "account:7").await?;
    Ok(())
}

async fn is_a_text_in_a_session(conn: &mut AsyncPgConnection, id: i64) -> Result<(), Error> {
    session::acquire(conn, format!("account:{id}")).await?;
    Ok(())
}

fn is_a_text_of_a_blocking_lock(conn: &mut PgConnection) -> Result<(), Error> {
    blocking::xact::lock(conn, "account:7")?;
    Ok(())
}

async fn is_a_text_of_a_lease(leases: &Leases<Pool<AsyncPgConnection>>) -> Result<(), lease::Error> {
    leases.acquire("account:7").await?;
    Ok(())
}

fn main() {}
