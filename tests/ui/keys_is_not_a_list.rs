#![allow(unused)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(keys = "a")]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
