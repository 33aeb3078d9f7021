#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<ids*>")]
async fn run(conn: &mut AsyncPgConnection, ids: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
