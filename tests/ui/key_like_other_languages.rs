#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "user:$plan")]
async fn shell(conn: &mut AsyncPgConnection, plan: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "user:%s")]
async fn printf(conn: &mut AsyncPgConnection, plan: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "plan:$1:?")]
async fn sql(conn: &mut AsyncPgConnection, plan: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "/plans/:plan")]
async fn route(conn: &mut AsyncPgConnection, plan: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "owner:plan")]
async fn bare(conn: &mut AsyncPgConnection, plan: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "plan_id")]
async fn alone(conn: &mut AsyncPgConnection, plan_id: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
