#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

struct Client;

#[advisory_lock(key = "<tenant_id>", scope = "xact")]
async fn book(conn: &mut Client, tenant_id: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
