#![allow(unused, deprecated)]
use advisory_runtime::{LockKey, advisory_lock};
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

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

fn main() {}
