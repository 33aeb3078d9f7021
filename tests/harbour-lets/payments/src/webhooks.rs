//! The provider's events, each delivered at least once.

use advisory_runtime::advisory_lease;
use advisory_runtime::lease::{Leases, Store};
use lets_store::{Error, Result};

/// An event as it is delivered.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub id: String,
}

/// With a pool, or with leases in memory.
pub struct Webhooks<P> {
    pub leases: Leases<P>,
}

impl<P: Store> Webhooks<P> {
    /// Handles each webhook once, also when it is delivered twice.
    ///
    /// The provider delivers again while another instance handles it.
    #[advisory_lease(
        key = "webhook:<webhook.id>",
        pool = self.leases,
        ttl = "60s",
        keep = "24h",
        wait = "never",
        on_done = Ok(false),
        on_held = Err(Error::Refused),
        component = "webhooks"
    )]
    pub async fn handle(&self, webhook: &Webhook) -> Result<bool> {
        Err(Error::Refused)
    }
}
