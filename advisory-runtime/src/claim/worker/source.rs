//! The connections of a worker: for claims, for renewals, and for ends.

use super::position::{ClaimAnswer, ClaimArgs};
use crate::PoolError;
use crate::claim::rows::JobRenewal;
use crate::claim::table::Claim;
use crate::claim::{Claimed, Error};
use crate::rows::Answering;
use std::sync::Arc;
use tokio::sync::Notify;
#[cfg(feature = "diesel-async")]
use {
    super::{Settings, listen},
    crate::claim::rows::keep_all,
    crate::rows::{Borrowed, Pooled},
    crate::{Connection, Pool},
};

/// Sends one claim on the connection that it holds. If its future is dropped, an async connection is
/// closed, and a blocking one finishes the claim and releases its rows.
pub(crate) type ClaimFn<'s, T> =
    Box<dyn FnOnce(ClaimArgs) -> Answering<'s, ClaimAnswer<T>, Error> + Send + 's>;

/// A pool of blocking or async connections.
pub(crate) trait Source<T: Claim>: Send + Sync {
    /// `true` if bodies are futures, which can be dropped.
    const IS_ASYNC: bool;

    /// Has the keeper renew claims, on connections of the pool.
    fn keep(&self, claimed: &[Claimed<T>]) -> Result<Vec<JobRenewal>, PoolError>;

    /// Takes a connection of the pool. If `opens_connection`, opens one outside the pool instead,
    /// if the pool can.
    fn connection(
        &self,
        opens_connection: bool,
    ) -> impl Future<Output = Result<ClaimFn<'_, T>, PoolError>> + Send;

    /// Wakes the worker up when there may be new rows. Returns if it cannot.
    fn listen(&self, wake: &Arc<Notify>) -> impl Future<Output = ()> + Send;
}

/// A pool of diesel-async.
#[cfg(feature = "diesel-async")]
pub(super) struct AsyncSource<'s, 'w, T: Claim, P> {
    pub(super) pool: &'s P,
    pub(super) settings: &'s Settings<'w, T>,
}

#[cfg(feature = "diesel-async")]
impl<T: Claim, P: Sync> AsyncSource<'_, '_, T, P> {
    fn claim_fn<'c, C: Connection + Send + 'c>(&'c self, conn: C) -> ClaimFn<'c, T> {
        Box::new(move |args| {
            Box::pin(async move {
                let mut borrowed = Borrowed::new(conn);
                let answer = self.settings.take(borrowed.pg(), &args).await;
                borrowed.record_answer();
                answer
            })
        })
    }
}

#[cfg(feature = "diesel-async")]
impl<T: Claim, P: Pool + Clone + Send + 'static> Source<T> for AsyncSource<'_, '_, T, P> {
    const IS_ASYNC: bool = true;

    fn keep(&self, claimed: &[Claimed<T>]) -> Result<Vec<JobRenewal>, PoolError> {
        let number = self.pool.identity().unwrap_or(self.settings.number);
        keep_all(self.pool, number, Pooled::new, claimed)
    }

    async fn connection(&self, opens_connection: bool) -> Result<ClaimFn<'_, T>, PoolError> {
        if opens_connection && let Ok(conn) = self.pool.dedicated().await {
            return Ok(self.claim_fn(conn));
        }
        Ok(self.claim_fn(self.pool.connection().await?))
    }

    async fn listen(&self, wake: &Arc<Notify>) {
        listen::listen(self.pool, self.settings, wake).await;
    }
}
