#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<name: uuid>")]
async fn run(conn: &mut AsyncPgConnection, name: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
