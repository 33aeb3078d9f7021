#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<amount>")]
async fn run(conn: &mut AsyncPgConnection, amount: f64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
