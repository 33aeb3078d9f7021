#![allow(unused, deprecated)]
use advisory_runtime::{Error, LockKey, advisory_lock};
use advisory_runtime::Pool as _;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

struct Exports {
    limit: f64,
}

impl Exports {
    #[advisory_lock(key = "export", permits = self.limit, wait = "never")]
    async fn export(&self, conn: &mut AsyncPgConnection) -> QueryResult<()> {
        _ = conn;
        Ok(())
    }

    #[advisory_lock(key = "preview", permits = "self.limit", wait = "never")]
    async fn preview(&self, conn: &mut AsyncPgConnection) -> QueryResult<()> {
        _ = conn;
        Ok(())
    }
}

#[advisory_lock(key = "job", permits = 0, wait = "never")]
async fn run(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job:<ids*>", permits = 3, wait = "never")]
async fn permits_of_several_keys(conn: &mut AsyncPgConnection, ids: &[i64]) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", permits = 3, wait = "never", mode = "shared", guards = "jobs")]
async fn permits_that_do_not_fit(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", permits = 3, wait = "5m")]
async fn permits_with_a_blocking_wait(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "job", permits = 3, poll = "1s", queue = 8, conn = pool.connection().await?)]
async fn permits_with_a_queue(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
    Ok(())
}

#[derive(LockKey)]
#[lock_key("job:<id>")]
struct JobLock {
    id: i64,
}

#[advisory_lock(key = JobLock { id }, permits = 3, wait = "never", handle = lock)]
async fn permits_with_a_witness(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    let witness = lock.holding();
    Ok(())
}

#[advisory_lock(key = "job", permits = 3)]
async fn permits_without_a_wait(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

fn main() {}
