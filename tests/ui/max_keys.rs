#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<ids*>", max_keys = "many")]
async fn run(conn: &mut AsyncPgConnection, ids: &[i64]) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(keys = ["a", "b"], max_keys = 1)]
async fn max_keys_without_a_slice(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
