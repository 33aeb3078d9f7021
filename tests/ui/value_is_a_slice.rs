#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "room:<rooms>")]
async fn close(conn: &mut AsyncPgConnection, rooms: Vec<i64>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "desk:<desks>")]
async fn clear(conn: &mut AsyncPgConnection, desks: &[i64]) -> QueryResult<()> {
    Ok(())
}

fn main() {}
