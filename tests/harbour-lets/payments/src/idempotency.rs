//! Requests that were answered once get the same answer again.

use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use lets_store::{Error, Pool, Result};

/// Answers a request once; `answer` is not called where there is an answer.
#[advisory_lock(key = "request:<key>", wait = "10s", component = "IdempotencyService")]
pub async fn once(conn: &mut AsyncPgConnection, key: &str) -> Result<String> {
    Err(Error::Refused)
}

/// Cleanup scheduler coordination
#[advisory_lock(
    key = 42424242,
    name = "idempotency-cleanup",
    scope = "session",
    wait = "never",
    on_held = Ok(None),
    component = "IdempotencyService",
    conn = pool.get().await?
)]
pub async fn clean_up(pool: &Pool) -> Result<Option<usize>> {
    Err(Error::Refused)
}
