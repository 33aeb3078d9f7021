#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<tennant_id>:<date>", scope = "xact")]
async fn book(conn: &mut AsyncPgConnection, tenant_id: i64, date: &str) -> QueryResult<()> {
    Ok(())
}

fn main() {}
