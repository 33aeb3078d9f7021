#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

struct Jobs {
    pool: Pool<AsyncPgConnection>,
}

impl Jobs {
    #[advisory_lock(key = "job:<id>", scope = "lease", handle = lease)]
    async fn run(&self, id: i64) -> QueryResult<bool> {
        Ok(lease.is_held())
    }
}

fn main() {}
