#![allow(unused, deprecated)]
use advisory_runtime::{KeyPart, LockKey, advisory_lock, lock_key};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "user:<name: uuid>")]
async fn has_another_shape(conn: &mut AsyncPgConnection, name: &str) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "amount:<amount>")]
async fn is_a_float(conn: &mut AsyncPgConnection, amount: f64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "desk:<desks>")]
async fn clear(conn: &mut AsyncPgConnection, desks: &[i64]) -> QueryResult<()> {
    Ok(())
}

#[derive(KeyPart)]
struct Uuid(String);

#[advisory_lock(key = "entry:<id>")]
async fn is_a_users_own_uuid(conn: &mut AsyncPgConnection, id: Uuid) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "tenant:<tenant>")]
async fn is_an_option(conn: &mut AsyncPgConnection, tenant: Option<i64>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
