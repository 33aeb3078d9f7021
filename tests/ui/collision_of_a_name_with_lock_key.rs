#![allow(unused, deprecated)]
use advisory_runtime::{Key, advisory_lock, lock_key};
use chrono::NaiveDate;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use uuid::Uuid;

#[advisory_lock(key = "<tenant_id>:<date>", name = "slot")]
async fn book(conn: &mut AsyncPgConnection, tenant_id: Uuid, date: NaiveDate) -> QueryResult<()> {
    Ok(())
}

fn slot(tenant_id: Uuid, date: NaiveDate) -> Key {
    lock_key!("<tenant_id>:<date>", name = "slot")
}

fn main() {}
