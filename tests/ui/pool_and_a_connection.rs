use advisory_runtime::{Error, Pool as _, advisory_lock};
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};

#[advisory_lock(key = "job", pool = pool, conn = pool.connection().await?)]
async fn run(pool: &Pool<AsyncPgConnection>) -> Result<(), Error> {
    Ok(conn.batch_execute("SELECT 1").await?)
}

fn main() {}
