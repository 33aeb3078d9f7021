#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<tenant>-<room>")]
async fn run(conn: &mut AsyncPgConnection, tenant: &str, room: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<a><b>")]
async fn key_has_adjacent_placeholders(conn: &mut AsyncPgConnection, a: i64, b: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
