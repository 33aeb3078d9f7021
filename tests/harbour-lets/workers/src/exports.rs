//! Exports, which take an hour; an old run must not write the last step.

use advisory_runtime::advisory_lease;
use lets_store::{Error, Pool, Result};

/// Counts the stays into an export, under a token: a run that was stopped and wakes up writes nothing.
#[advisory_lease(
    key = "export:<name>",
    name = "export",
    pool = pool,
    ttl = "30s",
    renew = "10s",
    wait = "2s",
    handle = lease,
    component = "exports"
)]
pub async fn run(pool: &Pool, name: &str) -> Result<i64> {
    Err(Error::Refused)
}
