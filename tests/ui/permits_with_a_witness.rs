#![allow(unused)]
use advisory_runtime::{LockKey, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

#[derive(LockKey)]
#[lock_key("job:<id>")]
struct JobLock {
    id: i64,
}

#[advisory_lock(key = JobLock { id }, permits = 3, wait = "never", handle = lock)]
async fn run(conn: &mut AsyncPgConnection, id: i64) -> QueryResult<()> {
    let witness = lock.holding();
    Ok(())
}

fn main() {}
