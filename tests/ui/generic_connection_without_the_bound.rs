#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<tenant_id>", scope = "xact")]
async fn book<C: diesel_async::AsyncConnection<Backend = diesel::pg::Pg>>(conn: &mut C, tenant_id: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
