#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<tenant>")]
async fn run(conn: &mut AsyncPgConnection, tenant: Option<i64>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
