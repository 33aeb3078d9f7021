//! The provider's events, each delivered at least once.

use advisory_runtime::advisory_lease;
use advisory_runtime::lease::{Leases, Store};
use async_trait::async_trait;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_store::schema::webhooks;
use lets_store::{Refusal, Result};

/// An event as it is delivered.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub id: String,
    pub kind: String,
}

/// The effect of an event.
#[async_trait]
pub trait Effect: Send + Sync {
    async fn apply(&self, webhook: &Webhook) -> Result<()>;
}

/// With a pool, or with leases in memory.
pub struct Webhooks<P, E> {
    pub leases: Leases<P>,
    pub effect: E,
}

impl<P: Store, E: Effect> Webhooks<P, E> {
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
        on_held = Err(Refusal::Busy.into()),
        component = "webhooks"
    )]
    pub async fn handle(&self, webhook: &Webhook) -> Result<bool> {
        if webhook.id.is_empty() {
            return Err(Refusal::Invalid.into());
        }
        self.effect.apply(webhook).await?;
        Ok(true)
    }
}

/// Writes what came into the table.
pub struct Recorded(pub lets_store::Pool);

#[async_trait]
impl Effect for Recorded {
    async fn apply(&self, webhook: &Webhook) -> Result<()> {
        diesel::insert_into(webhooks::table)
            .values((
                webhooks::event_id.eq(&webhook.id),
                webhooks::kind.eq(&webhook.kind),
            ))
            .execute(&mut self.0.get().await?)
            .await?;
        Ok(())
    }
}
