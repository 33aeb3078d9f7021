#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job")]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<usize> {
    let _: &mut AsyncPgConnection = conn;
    Ok("seven")
}

fn main() {}
