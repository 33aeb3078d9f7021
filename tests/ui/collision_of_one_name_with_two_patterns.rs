#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "slot:<slot>", name = "slot")]
async fn create(conn: &mut AsyncPgConnection, slot: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "slots:<slot>", name = "slot")]
async fn cancel(conn: &mut AsyncPgConnection, slot: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
