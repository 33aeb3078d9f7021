#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<day>", with(week = day / 7))]
async fn run(conn: &mut AsyncPgConnection, day: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<week>", with(week))]
async fn with_without_a_value(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<week>", with = week)]
async fn with_without_parentheses(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
