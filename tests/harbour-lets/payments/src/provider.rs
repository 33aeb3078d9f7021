//! The payment provider: a service across the network that answers slowly, or not at all.

use async_trait::async_trait;
use lets_domain::{Cents, OwnerId};
use lets_store::Result;
use std::sync::atomic::{AtomicUsize, Ordering};

#[async_trait]
pub trait Provider: Send + Sync {
    async fn pay_out(&self, owner: OwnerId, amount: Cents) -> Result<String>;
    async fn rate(&self, currency: &str) -> Result<i64>;
}

/// Makes no payment, and counts.
#[derive(Debug, Default)]
pub struct MockProvider {
    calls: AtomicUsize,
}

impl MockProvider {
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Provider for MockProvider {
    async fn pay_out(&self, owner: OwnerId, amount: Cents) -> Result<String> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{call}: {amount} to {owner}"))
    }

    async fn rate(&self, _: &str) -> Result<i64> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(1_080)
    }
}
