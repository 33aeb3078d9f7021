#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job:<ids*>", permits = 3, wait = "never")]
async fn run(conn: &mut AsyncPgConnection, ids: &[i64]) -> QueryResult<()> {
    Ok(())
}

fn main() {}
