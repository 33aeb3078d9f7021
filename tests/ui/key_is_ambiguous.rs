#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<tenant>-<room>")]
async fn run(conn: &mut AsyncPgConnection, tenant: &str, room: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
