#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "room:<room>", handle = room)]
async fn run(conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
