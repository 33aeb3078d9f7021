//! Points: earned by nights, spent on nights.

use advisory_runtime::{Connection, advisory_lock};
use lets_domain::GuestId;
use lets_domain::locks::LoyaltyLock;
use lets_store::{Error, Result};

#[advisory_lock(key = LoyaltyLock { guest }, wait = "5s")]
pub async fn earn<C: Connection>(conn: &mut C, guest: GuestId) -> Result<i64> {
    Err(Error::Refused)
}
