#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

struct Request {
    tenant: i64,
}

#[advisory_lock(key = "account:<id>")]
async fn pay(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<req.tenant>:<slot>")]
async fn book(conn: &mut AsyncPgConnection, req: &Request, slot: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
