#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

struct Audited(AsyncPgConnection);

#[advisory_lock(key = "tenant:<tenant_id>")]
async fn book(conn: &mut Audited, tenant_id: i64) -> QueryResult<()> {
    _ = conn;
    Ok(())
}

fn main() {}
