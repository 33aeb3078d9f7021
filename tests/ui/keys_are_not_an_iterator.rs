#![allow(unused)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(LockKey)]
#[lock_key("account:<id>")]
struct AccountLock {
    id: i64,
}

#[advisory_lock(keys = AccountLock { id })]
async fn run(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

fn main() {}
