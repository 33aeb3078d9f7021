//! Exchange rates: fetched by the first call that needs them, from a provider that counts our calls.

use advisory_runtime::advisory_lease;
use lets_store::{Error, Pool, Result};

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
pub async fn fetch(pool: &Pool, currency: &str) -> Result<bool> {
    Err(Error::Refused)
}
