//! Payouts to owners by the provider: a call that takes longer than a connection should be held.

use crate::provider::Provider;
use crate::statements;
use advisory_runtime::advisory_lease;
use lets_domain::OwnerId;
use lets_store::{Pool, Refusal, Result};

pub struct Payouts<P> {
    pub pool: Pool,
    pub provider: P,
}

impl<P: Provider> Payouts<P> {
    /// Pays an owner's month once: while it is being paid, and for a month after it was.
    #[advisory_lease(
        key = "payout:<owner: int>:<month>",
        pool = self.pool,
        ttl = "60s",
        renew = "15s",
        keep = "720h",
        wait = "never",
        on_done = Err(Refusal::AlreadyDone.into()),
        on_held = Err(Refusal::Busy.into()),
        handle = lease,
        component = "owners"
    )]
    pub async fn pay(&self, owner: OwnerId, month: &str) -> Result<(String, i64)> {
        let mut conn = self.pool.get().await?;
        let total = statements::close(&mut conn, owner, month).await?;
        drop(conn);
        let receipt = self.provider.pay_out(owner, total).await?;
        Ok((receipt, lease.token().get()))
    }
}
