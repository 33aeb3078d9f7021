#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<tenant|lower>")]
async fn run(conn: &mut AsyncPgConnection, tenant: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<tenant|trim|trim>")]
async fn key_has_a_filter_twice(conn: &mut AsyncPgConnection, tenant: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<>")]
async fn key_has_an_empty_placeholder(conn: &mut AsyncPgConnection, tenant: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<tenant|trimm>")]
async fn key_has_an_unknown_filter(conn: &mut AsyncPgConnection, tenant: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<tenant: uid>")]
async fn key_has_an_unknown_shape(conn: &mut AsyncPgConnection, tenant: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<tenant.id()>")]
async fn key_holds_a_call(conn: &mut AsyncPgConnection, tenant: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<tenant + 1>")]
async fn key_holds_an_expression(conn: &mut AsyncPgConnection, tenant: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "<tenant")]
async fn key_is_not_closed(conn: &mut AsyncPgConnection, tenant: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "{tenant_id}:{date}")]
async fn key_like_format(conn: &mut AsyncPgConnection, tenant_id: i64, date: &str) -> QueryResult<()> {
    Ok(())
}

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

#[advisory_lock(key = "a\tb")]
async fn key_with_a_control_character(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
