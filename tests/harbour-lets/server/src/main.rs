//! Migrates, and works until nothing is left to do.

use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::{AsyncDieselConnectionManager, deadpool::Pool};
use lets_server::{payments, store, workers};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(url);
    let pool = Pool::builder(manager).max_size(8).build()?;
    advisory_runtime::session::verify(&pool).await?;
    store::migrate::migrate(&pool).await?;
    payments::idempotency::clean_up(&pool).await?;
    workers::outbox::send(&pool, "server", |letter| letter.address.contains('@')).await?;
    Ok(())
}
