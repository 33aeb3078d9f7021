#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job:<id>")]
async fn start(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job:<id>")]
async fn pause(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job:<id>")]
async fn resume(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "pause:<id>")]
async fn other(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job:<id>")]
async fn finish(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
