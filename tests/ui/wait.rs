#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "job", wait = "5 seconds")]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", wait = 5s)]
async fn wait_is_a_time_without_quotes(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", wait = "nevr")]
async fn wait_is_misspelt(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", wait = seconds)]
async fn wait_is_not_a_duration(conn: &mut AsyncPgConnection, seconds: u64) -> QueryResult<()> {
    let _ = conn;
    Ok(())
}

#[advisory_lock(key = "job", wait = "1000h")]
async fn wait_is_too_long(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", wait = "0s")]
async fn wait_is_zero(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", wait = 5)]
async fn wait_without_a_unit(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", wait = never)]
async fn wait_without_quotes(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
