#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job", scope = "session", isolation = "serializable", nested = "refuse", mode = "shared", on_held = Ok(()), queue = 4, max_hold = 30, handle = conn)]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
