//! Bookings as a trait, so that code that uses them can be tested without a database.

use advisory_runtime::advisory_lock;
use async_trait::async_trait;
use lets_domain::BookingId;
use lets_domain::locks::StayLock;
use lets_store::{Error, Pool, Result};

#[async_trait]
pub trait BookingRepository: Send + Sync {
    async fn hand_over(&self, booking: BookingId) -> Result<()>;
    async fn discount(&self, booking: BookingId) -> Result<i64>;
}

/// In PostgreSQL, each call on a connection of its own.
#[derive(Clone)]
pub struct PgBookings {
    pub pool: Pool,
}

#[async_trait]
impl BookingRepository for PgBookings {
    /// Somebody else comes in the guest's place.
    #[advisory_lock(
        key = StayLock { booking },
        conn = self.pool.get().await?,
        wait = "5s",
        on_held = Err(Error::Refused)
    )]
    async fn hand_over(&self, booking: BookingId) -> Result<()> {
        Err(Error::Refused)
    }

    /// A clerk who clicks twice gives one discount: the second gets an error.
    #[advisory_lock(
        key = StayLock { booking },
        conn = self.pool.get().await?,
        wait = "never",
        on_held = Err(Error::Refused)
    )]
    async fn discount(&self, booking: BookingId) -> Result<i64> {
        Err(Error::Refused)
    }
}
