#![allow(unused)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(LockKey)]
#[lock_key("account:<id>")]
struct AccountLock {
    id: i64,
}

#[advisory_lock(key = AccountLock { id }, derivation = "md5")]
async fn run(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
