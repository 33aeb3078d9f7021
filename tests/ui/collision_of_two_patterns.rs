#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<tenant>:<slot>")]
async fn book(conn: &mut AsyncPgConnection, tenant: &str, slot: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<account>:<month>")]
async fn settle(conn: &mut AsyncPgConnection, account: &str, month: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
