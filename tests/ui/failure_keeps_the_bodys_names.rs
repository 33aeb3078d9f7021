#![deny(warnings)]
use advisory_runtime::{LockKey, advisory_lock};
use diesel::pg::PgConnection;
use diesel::r2d2::{ConnectionManager, Pool as BlockingPool};
use diesel_async::{AsyncPgConnection, pooled_connection::bb8::Pool};

#[derive(LockKey)]
#[lock_key("account:<id>")]
pub struct AccountLock {
    id: i64,
}

pub struct Repository {
    pool: Pool<AsyncPgConnection>,
}

impl Repository {
    #[advisory_lock(key = "user:<user", conn = self.pool.get().await?)]
    pub async fn not_closed(&self, user: i64) -> anyhow::Result<usize> {
        let updated = diesel_async::RunQueryDsl::execute(diesel::sql_query("UPDATE"), &mut conn).await?;
        Ok(updated)
    }

    #[advisory_lock(key = "user:<user>", conn = &self.pool)]
    pub async fn names_the_pool(&self, user: i64) -> anyhow::Result<usize> {
        Ok(diesel_async::RunQueryDsl::execute(diesel::sql_query("UPDATE"), &mut conn).await?)
    }

    #[advisory_lock(key = "user:<user>", conn = self.pool.get().await?)]
    pub async fn returns_a_number(&self, user: i64) -> usize {
        diesel_async::RunQueryDsl::execute(diesel::sql_query("UPDATE"), &mut conn).await.unwrap()
    }

    #[advisory_lock(key = "user:<user>", handel = lock, handle = lock, conn = self.pool.get().await?)]
    pub async fn has_a_handle(&self, user: i64) -> anyhow::Result<usize> {
        println!("{:?}", lock.waited());
        Ok(diesel_async::RunQueryDsl::execute(diesel::sql_query("UPDATE"), &mut conn).await?)
    }

    #[advisory_lock(key = AccountLock { id: user }, scop = "xact", handle = lock, conn = self.pool.get().await?)]
    pub async fn has_a_witness(&self, user: i64) -> anyhow::Result<usize> {
        println!("{}", lock.holding().key().id);
        Ok(diesel_async::RunQueryDsl::execute(diesel::sql_query("UPDATE"), &mut conn).await?)
    }
}

#[advisory_lock(key = "user:<usr>", conn = pool.get()?)]
pub fn blocking(pool: &BlockingPool<ConnectionManager<PgConnection>>, user: i64) -> anyhow::Result<usize> {
    Ok(diesel::RunQueryDsl::execute(diesel::sql_query("UPDATE"), conn)?)
}

fn main() {}
