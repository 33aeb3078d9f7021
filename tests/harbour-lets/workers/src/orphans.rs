//! Registrations that were never confirmed. Functions in the database do the same for the sign-up page, with the same
//! numbers: `acquire_cleanup_lock` and `generate_lock_id`.

use advisory_runtime::advisory_lock;
use lets_store::{Error, Pool, Result};
use std::time::Duration;

/// ORPHAN_CLEANUP_009: one cleanup of an address at a time, here or in the database's own functions.
#[advisory_lock(
    key = "<email|trim|lower|raw>",
    scope = "session",
    wait = "never",
    on_held = Err(Error::Refused),
    max_hold = "30s",
    component = "sign-up",
    allow_overlap("*", "the number of an address alone, which functions in the database compute too"),
    conn = pool.get().await?
)]
pub async fn clean_up(pool: &Pool, email: &str) -> Result<usize> {
    Err(Error::Refused)
}

/// Registrations of one address, one after the other; `generate_lock_id('registration', address)` is its number.
#[advisory_lock(
    key = "registration:<email|trim|lower|raw>",
    scope = "session",
    wait = patience,
    component = "sign-up",
    conn = pool.get().await?
)]
pub async fn confirm(pool: &Pool, email: &str, patience: Duration) -> Result<bool> {
    Err(Error::Refused)
}
