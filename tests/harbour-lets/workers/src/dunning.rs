//! Dunning letters, level by level.

use advisory_runtime::advisory_lock;
use lets_domain::BookingId;
use lets_store::{Error, Pool, Result};

pub struct Dunning {
    pub pool: Pool,
    /// Keeps the letters of two brands apart that share this database.
    pub brand: String,
}

impl Dunning {
    /// One letter a level and stay, also where two clerks press the button.
    #[advisory_lock(
        key = "dunning:<self.brand>:<booking: uuid>:<level>",
        component = "letters",
        conn = self.pool.get().await?,
        wait = "never",
        on_held = Ok(None)
    )]
    pub async fn write(&self, booking: BookingId, level: u8) -> Result<Option<&'static str>> {
        Err(Error::Refused)
    }
}
