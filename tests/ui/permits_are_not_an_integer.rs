#![allow(unused)]
use advisory_runtime::advisory_lock;
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

fn main() {}
