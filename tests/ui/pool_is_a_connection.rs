use advisory_runtime::advisory_lock;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};

struct Service {
    pool: Pool<AsyncPgConnection>,
}

impl Service {
    #[advisory_lock(key = "job", pool = self.pool.get().await?)]
    async fn run(&self) -> anyhow::Result<()> {
        Ok(conn.batch_execute("SELECT 1").await?)
    }
}

fn main() {}
