#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job", wait = seconds)]
async fn run(conn: &mut AsyncPgConnection, seconds: u64) -> QueryResult<()> {
    let _ = conn;
    Ok(())
}

fn main() {}
