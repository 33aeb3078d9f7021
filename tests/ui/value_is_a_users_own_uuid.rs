#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(KeyPart)]
struct Uuid(String);

#[advisory_lock(key = "<id>")]
async fn run(conn: &mut AsyncPgConnection, id: Uuid) -> QueryResult<()> {
    Ok(())
}

fn main() {}
