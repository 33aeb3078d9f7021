#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

diesel::table! {
    tenant (id) {
        id -> BigInt,
    }
}

#[advisory_lock(key = "tenant:<id>", name = "tenant", at = (tenant::id, id))]
async fn open(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "tenant:<id>", name = "tenant")]
async fn close(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "session:<id>", at = (tenant::id, id), scope = "session")]
async fn at_of_a_session(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "strict:<id>", at = (tenant::id, id), isolation = "serializable")]
async fn at_of_a_strict_transaction(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "permit:<id>", at = (tenant::id, id), permits = 3, wait = "never")]
async fn at_with_permits(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

#[advisory_lock(key = "column:<id>", at = tenant::id)]
async fn at_without_a_value(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

fn main() {}
