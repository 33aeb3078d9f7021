#![allow(unused)]
use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool::Pool;

#[advisory_lock(key = "<tenant_id>", conn = pool)]
async fn book(pool: &Pool<AsyncPgConnection>, tenant_id: i64) -> anyhow::Result<()> {
    Ok(())
}

fn main() {}
