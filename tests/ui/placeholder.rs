#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

struct Request {
    tenant: i64,
    date: i64,
}

#[advisory_lock(key = "slot:<req.tennant>:<req.date>", scope = "xact")]
async fn book(conn: &mut AsyncPgConnection, req: &Request) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "room:<req.room>", scope = "xact")]
async fn close(conn: &mut AsyncPgConnection, req: &Request) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<tennant_id>:<date>", scope = "xact")]
async fn placeholder_is_not_a_parameter(conn: &mut AsyncPgConnection, tenant_id: i64, date: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<self.tenant>")]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
