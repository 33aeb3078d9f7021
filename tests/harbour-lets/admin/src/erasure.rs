//! A guest asks to be forgotten.

use advisory_runtime::advisory_lock;
use diesel::PgConnection;
use lets_domain::GuestId;
use lets_domain::locks::{GuestLock, LoyaltyLock};
use lets_store::{Error, Result};

/// Forgets a guest who is not to come any more.
///
/// The guest and the points, as the services take them: in the order of `lets_domain::locks`, here in one step.
#[advisory_lock(
    keys = [GuestLock { guest }, LoyaltyLock { guest }],
    wait = "10s",
    isolation = "repeatable read",
    nested = "refuse"
)]
pub fn erase(conn: &mut PgConnection, guest: GuestId) -> Result<()> {
    Err(Error::Refused)
}
