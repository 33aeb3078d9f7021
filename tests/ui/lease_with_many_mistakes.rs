#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(keys = ["a", "b"], mode = "shared", isolation = "serializable", nested = "refuse", queue = 4, derivation = "md5", conn = conn, ttl = "9s", renew = "10s", on_held = Ok(()), handle = conn)]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
