//! Payouts to owners by the provider: a call that takes longer than a connection should be held.

use advisory_runtime::advisory_lease;
use lets_domain::OwnerId;
use lets_store::{Error, Pool, Result};

pub struct Payouts {
    pub pool: Pool,
}

impl Payouts {
    /// Pays an owner's month once: while it is being paid, and for a month after it was.
    #[advisory_lease(
        key = "payout:<owner: int>:<month>",
        pool = self.pool,
        ttl = "60s",
        renew = "15s",
        keep = "720h",
        wait = "never",
        on_done = Err(Error::Refused),
        on_held = Err(Error::Refused),
        handle = lease,
        component = "owners"
    )]
    pub async fn pay(&self, owner: OwnerId, month: &str) -> Result<(String, i64)> {
        Err(Error::Refused)
    }
}
