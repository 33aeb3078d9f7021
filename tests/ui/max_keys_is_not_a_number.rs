#![allow(unused)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<ids*>", max_keys = "many")]
async fn run(conn: &mut AsyncPgConnection, ids: &[i64]) -> QueryResult<()> {
    Ok(())
}

fn main() {}
