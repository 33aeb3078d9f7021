#![allow(unused)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<a>-<b>", allow_ambiguous = "")]
async fn run(conn: &mut AsyncPgConnection, a: &str, b: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
