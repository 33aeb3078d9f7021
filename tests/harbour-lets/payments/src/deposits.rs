//! Deposits: taken at the booking, given back or kept at the end.

use advisory_runtime::{Connection, advisory_lock};
use lets_domain::BookingId;
use lets_store::{Error, Result};

/// Ends a deposit one way or the other, never both.
#[advisory_lock(
    key = "deposit:<booking: uuid>",
    name = "deposit",
    component = "deposits",
    wait = "5s"
)]
pub async fn settle(conn: &mut impl Connection, booking: BookingId) -> Result<i64> {
    Err(Error::Refused)
}
