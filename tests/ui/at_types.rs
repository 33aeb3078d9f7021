#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

diesel::table! {
    tenant (id) {
        id -> BigInt,
    }
}

#[advisory_lock(key = "tenant:<name>", at = (tenant::id, name))]
async fn at_with_another_type(conn: &mut AsyncPgConnection, name: &str) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

fn main() {}
