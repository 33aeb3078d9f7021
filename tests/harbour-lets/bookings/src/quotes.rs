//! Offers that a guest takes or leaves.

use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use lets_domain::BookingId;
use lets_store::{Error, Result};
use uuid::Uuid;

/// A quote is taken once; the booking is made in the same transaction.
#[advisory_lock(key = "quote:<quote>", wait = "5s", component = "bookings")]
pub async fn take(conn: &mut AsyncPgConnection, quote: Uuid) -> Result<BookingId> {
    Err(Error::Refused)
}
