//! Guests, and the merging of two records of one person.

use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use lets_domain::GuestId;
use lets_domain::locks::{EmailLock, GuestLock};
use lets_store::{Error, Pool, Result};

pub struct Guests {
    pub pool: Pool,
}

impl Guests {
    /// One guest per address: a guest who returns is found again.
    #[advisory_lock(
        key = EmailLock { address: email.to_owned() },
        conn = self.pool.get().await?,
        wait = "5s",
        queue = 32
    )]
    pub async fn register(&self, email: &str) -> Result<GuestId> {
        Err(Error::Refused)
    }

    /// Rewrites a guest's name.
    #[advisory_lock(key = GuestLock { guest }, conn = self.pool.get().await?, wait = "5s")]
    pub async fn rename(&self, guest: GuestId) -> Result<()> {
        Err(Error::Refused)
    }
}

/// Two records of one person become one, with all their stays.
#[advisory_lock(
    keys = [GuestLock { guest: kept }, GuestLock { guest: gone }],
    wait = "5s",
    max_hold = "20s"
)]
pub async fn merge(conn: &mut AsyncPgConnection, kept: GuestId, gone: GuestId) -> Result<usize> {
    Err(Error::Refused)
}
