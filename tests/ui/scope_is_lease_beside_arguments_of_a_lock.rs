#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::bb8::Pool;

struct Jobs {
    db: Pool<AsyncPgConnection>,
}

impl Jobs {
    #[advisory_lock(key = "job:<id>", scope = "lease", mode = "exclusive", max_hold = "5m", conn = self.db.get().await?)]
    async fn run(&self, id: i64) -> Result<bool, diesel::result::Error> {
        Ok(id > 0)
    }
}

fn main() {}
