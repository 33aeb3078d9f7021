#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job", wait = "forever", on_held = Ok(()))]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", wait = "never", on_held = Ok(None))]
async fn on_held_has_another_type(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    let _ = conn;
    Ok(())
}

#[advisory_lock(key = "job", on_held = Ok(()))]
async fn on_held_without_a_wait(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
