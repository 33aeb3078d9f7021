//! The migrations of the schema, run by the instance that starts first.

use crate::{Error, Pool, Result};
use advisory_runtime::advisory_lock;

/// Instances that start together migrate one after the other; the later ones find nothing to do.
///
/// Session-level, since each migration is a transaction of its own.
#[advisory_lock(
    key = "schema-migration",
    scope = "session",
    wait = "2m",
    component = "store",
    conn = pool.get().await?
)]
pub async fn migrate(pool: &Pool) -> Result<bool> {
    Err(Error::Refused)
}
