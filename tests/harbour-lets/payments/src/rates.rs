//! Exchange rates: fetched by the first call that needs them, from a provider that counts our calls.

use crate::provider::Provider;
use advisory_runtime::advisory_lease;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_store::schema::exchange_rates;
use lets_store::{Pool, Result};

/// Fetches a currency's rate; calls in the meantime use the old one.
#[advisory_lease(
    key = "rate:<currency|trim|lower>",
    pool = pool,
    ttl = "20s",
    keep = "1h",
    wait = "never",
    on_done = Ok(false),
    on_held = Ok(false),
    component = "rates"
)]
pub async fn fetch(pool: &Pool, provider: &dyn Provider, currency: &str) -> Result<bool> {
    let per_mille = provider.rate(currency).await?;
    let mut conn = pool.get().await?;
    diesel::insert_into(exchange_rates::table)
        .values((
            exchange_rates::currency.eq(currency),
            exchange_rates::per_mille.eq(per_mille),
            exchange_rates::fetched.eq(1),
        ))
        .on_conflict(exchange_rates::currency)
        .do_update()
        .set((
            exchange_rates::per_mille.eq(per_mille),
            exchange_rates::fetched.eq(exchange_rates::fetched + 1),
        ))
        .execute(&mut conn)
        .await?;
    Ok(true)
}
