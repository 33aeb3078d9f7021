#![allow(unused)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "booking:<id>", guards = "bookings,")]
async fn run(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
