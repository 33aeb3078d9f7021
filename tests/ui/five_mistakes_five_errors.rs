#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[advisory_lock(key = "<a+b>:<tenant: uid>:<x|trimm>:", scope = "sesion", waitt = "5s")]
async fn run(conn: &AsyncPgConnection, tenant: i64) -> QueryResult<()> {
    Ok(())
}

fn main() {}
