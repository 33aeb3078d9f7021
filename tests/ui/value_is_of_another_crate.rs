#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use std::time::SystemTime;

#[advisory_lock(key = "at:<at>")]
async fn run(conn: &mut AsyncPgConnection, at: SystemTime) -> QueryResult<()> {
    Ok(())
}

fn main() {}
