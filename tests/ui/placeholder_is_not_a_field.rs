#![allow(unused, deprecated)]
use advisory_runtime::{LockKey, advisory_lock};
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

fn main() {}
