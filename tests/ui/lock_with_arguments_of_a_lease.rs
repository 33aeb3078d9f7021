#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lock(key = "job", ttl = "60s", renew = "20s", keep = "24h", on_done = Ok(()), expires = "60s")]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
