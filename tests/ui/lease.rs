#![allow(unused, deprecated)]
use advisory_runtime::advisory_lease;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

#[advisory_lease(key = "job", conn = pool.get().await?)]
async fn run(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool, conn = conn)]
async fn lease_with_a_connection_beside_the_pool(conn: &mut AsyncPgConnection, pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool, mode = "shared")]
async fn lease_with_a_mode(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", scope = "lease", pool = pool)]
async fn lease_with_a_scope(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool, poll = "1s", poll_max = "2s", permits = 3, isolation = "serializable", nested = "refuse", queue = 4, derivation = "md5", max_keys = 8, allow_ambiguous = "old", guards = "jobs")]
async fn lease_with_arguments_of_a_lock(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job", pool = pool, max_hold = "5m")]
async fn lease_with_max_hold(pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    Ok(())
}

#[advisory_lease(key = "job")]
async fn lease_without_a_pool(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

struct Jobs;

impl Jobs {
    #[advisory_lease(key = "job")]
    async fn run(&self) -> QueryResult<()> {
        Ok(())
    }
}

#[advisory_lease(keys = ["a", "b"], mode = "shared", isolation = "serializable", nested = "refuse", queue = 4, derivation = "md5", conn = conn, ttl = "9s", renew = "10s", on_held = Ok(()), handle = conn)]
async fn lease_with_many_mistakes(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
