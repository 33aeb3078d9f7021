#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job", derivation = "sha512")]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[derive(LockKey)]
#[lock_key("account:<id>")]
struct AccountLock {
    id: i64,
}

#[advisory_lock(key = AccountLock { id }, derivation = "md5")]
async fn derivation_of_a_declared_key(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", derivation = md5)]
async fn derivation_without_quotes(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
