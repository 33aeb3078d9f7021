#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<a>-<b>", allow_ambiguous = "")]
async fn run(conn: &mut AsyncPgConnection, a: &str, b: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "slot:<slot>", allow_overlap("other"))]
async fn create(conn: &mut AsyncPgConnection, slot: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", guards = "jobs", allow_redundant = " ")]
async fn allow_redundant_without_a_reason(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", allow_redundant = "the sum needs it")]
async fn allow_redundant_without_guards(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "booking:<id>", guards = "bookings,")]
async fn guards_without_a_table(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
