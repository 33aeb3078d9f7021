#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::AsyncPgConnection;

struct Repository {
    pool: diesel_async::pooled_connection::deadpool::Pool<AsyncPgConnection>,
}

impl Repository {
    #[advisory_lock(key = "<tenant_id>", scope = "xact", conn = self.pool.get().await?)]
    async fn book(&self, tenant_id: i64) -> anyhow::Result<()> {
        let mut conn = self.pool.get().await?;
        Ok(())
    }
}

fn main() {}
