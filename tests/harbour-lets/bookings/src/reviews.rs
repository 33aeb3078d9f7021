//! Reviews by guests.

use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use lets_domain::BookingId;
use lets_store::{Error, Result};

/// One review a stay, and only of one that is over; a second one replaces the first.
#[advisory_lock(
    key = "review:<booking: uuid>",
    component = "reviews",
    nested = "refuse"
)]
pub async fn write(conn: &mut AsyncPgConnection, booking: BookingId) -> Result<()> {
    Err(Error::Refused)
}
