//! The monthly earnings of an owner.

use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use lets_domain::OwnerId;
use lets_domain::locks::StatementLock;
use lets_store::{Error, Result};

/// Adds to a month that is not paid out.
#[advisory_lock(key = StatementLock { owner, month: month.to_owned() }, wait = "5s")]
pub async fn add(conn: &mut AsyncPgConnection, owner: OwnerId, month: &str) -> Result<i64> {
    Err(Error::Refused)
}
