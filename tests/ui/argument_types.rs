#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

diesel::table! {
    tenant (id) {
        id -> BigInt,
    }
}

#[advisory_lock(key = "job", wait = seconds)]
async fn wait_is_not_a_duration(conn: &mut AsyncPgConnection, seconds: u64) -> QueryResult<()> {
    let _ = conn;
    Ok(())
}

#[advisory_lock(key = "job", wait = "never", on_held = Ok(None))]
async fn on_held_has_another_type(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    let _ = conn;
    Ok(())
}

#[advisory_lock(key = "tenant:<name>", at = (tenant::id, name))]
async fn at_with_another_type(conn: &mut AsyncPgConnection, name: &str) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

fn main() {}
