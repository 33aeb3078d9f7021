#![allow(unused)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "42")]
async fn number(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = (7, "42"), derivation = "hashtext")]
async fn half(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {
    lock_key!("-7");
}
