#![allow(unused, deprecated)]
use advisory_runtime::advisory_lock;
use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};

struct Repository {
    pool: Pool<AsyncPgConnection>,
}

impl Repository {
    #[advisory_lock(key = "tenant:<tenant_id>", conn = &self.pool)]
    async fn book(&self, tenant_id: i64) -> anyhow::Result<()> {
        Ok(())
    }

    #[advisory_lock(key = "room:<room>", conn = self.pool)]
    async fn close(&self, room: i64) -> anyhow::Result<()> {
        Ok(())
    }
}

fn main() {}
