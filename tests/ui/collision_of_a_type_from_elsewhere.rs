#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, KeyText, advisory_lock, shape};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "report:<month>")]
async fn report(conn: &mut AsyncPgConnection, month: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<tenant>:<slot>")]
async fn book(conn: &mut AsyncPgConnection, tenant: &TenantId, slot: i64) -> QueryResult<()> {
    Ok(())
}

#[derive(KeyPart)]
struct TenantId(i64);

fn main() {}
