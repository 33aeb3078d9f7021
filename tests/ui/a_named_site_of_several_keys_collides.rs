#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job:<id>")]
async fn start(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(keys = ["pause:job:<id>", "job:<id>"], name = "pause")]
async fn pause(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
