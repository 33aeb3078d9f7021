//! The scheduler of each instance; at each tick one of them works.

use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use lets_store::{Error, Pool, Result};

/// One tick. An instance that comes while it runs has nothing to do.
#[advisory_lock(
    key = "scheduler",
    scope = "session",
    wait = "never",
    on_held = Ok(false),
    max_hold = "10m",
    component = "scheduler",
    conn = pool.get().await?
)]
pub async fn tick(pool: &Pool) -> Result<bool> {
    Err(Error::Refused)
}

/// The night's work is done once a night, by whichever instance is first; the others find its row.
#[advisory_lock(
    key = "nightly:<night>",
    component = "scheduler",
    conn = pool.get().await?,
    queue = 4,
    wait = "1m"
)]
pub async fn nightly(pool: &Pool, night: NaiveDate) -> Result<bool> {
    Err(Error::Refused)
}
