use advisory_runtime::advisory_lock;
use diesel::QueryResult;
use diesel_async::pooled_connection::bb8::Pool;
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};

struct Bookings {
    db: Pool<AsyncPgConnection>,
}

#[advisory_lock(key = "a")]
async fn is_missing(tenant_id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "b")]
fn is_missing_in_a_blocking_function(tenant_id: i64) -> QueryResult<()> {
    Ok(())
}

#[advisory_lock(key = "c")]
async fn has_another_name(db: &mut AsyncPgConnection) -> QueryResult<()> {
    db.batch_execute("SELECT 1").await
}

#[advisory_lock(key = "d", pool = pool, conn = pool.get().await?)]
async fn is_given_twice(pool: &Pool<AsyncPgConnection>) -> anyhow::Result<()> {
    Ok(conn.batch_execute("SELECT 1").await?)
}

#[advisory_lock(key = "e", pool = pool)]
async fn is_given_by_a_pool_too(conn: &mut AsyncPgConnection, pool: &Pool<AsyncPgConnection>) -> QueryResult<()> {
    conn.batch_execute("SELECT 1").await
}

#[advisory_lock(key = "f", conn = &mut db)]
async fn is_borrowed(db: &mut AsyncPgConnection) -> QueryResult<()> {
    db.batch_execute("SELECT 1").await
}

#[advisory_lock(key = "g", _conn = db)]
async fn has_an_underscore(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    Ok(())
}

impl Bookings {
    #[advisory_lock(key = "h")]
    async fn is_taken_in_the_body(&self) -> anyhow::Result<()> {
        let mut conn = self.db.get().await?;
        Ok(conn.batch_execute("SELECT 1").await?)
    }

    #[advisory_lock(key = "i", pool = self.db)]
    async fn is_taken_again(&self) -> anyhow::Result<()> {
        let mut conn = self.db.get().await?;
        Ok(conn.batch_execute("SELECT 1").await?)
    }

    #[advisory_lock(key = "j")]
    async fn is_replaced(&self, conn: &mut AsyncPgConnection) -> anyhow::Result<()> {
        let mut conn = self.db.get().await?;
        Ok(conn.batch_execute("SELECT 1").await?)
    }

    #[advisory_lock(key = "k", conn = &self.db)]
    async fn is_a_borrowed_pool(&self) -> anyhow::Result<()> {
        Ok(conn.batch_execute("SELECT 1").await?)
    }
}

fn main() {}
