#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(KeyPart)]
struct TenantId(i64);

#[derive(KeyPart)]
struct AccountId(i64);

#[advisory_lock(key = "<tenant>:<slot>")]
async fn book(conn: &mut AsyncPgConnection, tenant: TenantId, slot: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "account:<id>")]
async fn pay(conn: &mut AsyncPgConnection, id: AccountId) -> QueryResult<()> {
    Ok(())
}

fn main() {}
