#![allow(unused)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job", pool = pool, poll = "1s", poll_max = "2s", permits = 3, isolation = "serializable", nested = "refuse", queue = 4, derivation = "md5", max_keys = 8, allow_ambiguous = "old", guards = "jobs")]
async fn run(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

fn main() {}
