//! The connections of a worker: for claims, for renewals, and for ends.

use super::start::{Asked, Taken};
use crate::PoolError;
use crate::claim::rows::KeptJob;
use crate::claim::table::Claim;
use crate::claim::{Claimed, Error};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Notify;
#[cfg(feature = "diesel-async")]
use {
    super::{Settings, listen},
    crate::claim::rows::keep_all,
    crate::rows::{Borrowed, Pooled},
    crate::{Connection, Pool},
};

/// A connection for one claim. If the claim is dropped, the connection is not used again.
pub(crate) type Claiming<'s, T> = Box<
    dyn FnOnce(Asked) -> Pin<Box<dyn Future<Output = Result<Taken<T>, Error>> + Send + 's>>
        + Send
        + 's,
>;

/// A pool of blocking or async connections.
pub(crate) trait Source<T: Claim>: Send + Sync {
    /// `true` if bodies are futures, which can be dropped.
    const IS_ASYNC: bool;

    fn identity(&self) -> Option<usize>;

    /// Has the keeper renew claims, on connections of the pool, which has this number.
    fn keep(&self, number: usize, claimed: &[Claimed<T>]) -> Result<Vec<KeptJob>, PoolError>;

    /// Takes a connection of the pool. If `is_fresh`, opens one outside the pool instead, if the
    /// pool can.
    fn connection(
        &self,
        is_fresh: bool,
    ) -> impl Future<Output = Result<Claiming<'_, T>, PoolError>> + Send;

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
    fn claiming<'c, C: Connection + Send + 'c>(&'c self, conn: C) -> Claiming<'c, T> {
        Box::new(move |asked| {
            Box::pin(async move {
                let mut borrowed = Borrowed::new(conn);
                let taken = self.settings.take(borrowed.pg(), &asked).await;
                borrowed.record_answer();
                taken
            })
        })
    }
}

#[cfg(feature = "diesel-async")]
impl<T: Claim, P: Pool + Clone + Send + 'static> Source<T> for AsyncSource<'_, '_, T, P> {
    const IS_ASYNC: bool = true;

    fn identity(&self) -> Option<usize> {
        self.pool.identity()
    }

    fn keep(&self, number: usize, claimed: &[Claimed<T>]) -> Result<Vec<KeptJob>, PoolError> {
        keep_all(self.pool, number, Pooled::new, claimed)
    }

    async fn connection(&self, is_fresh: bool) -> Result<Claiming<'_, T>, PoolError> {
        if is_fresh && let Ok(conn) = self.pool.dedicated().await {
            return Ok(self.claiming(conn));
        }
        Ok(self.claiming(self.pool.connection().await?))
    }

    async fn listen(&self, wake: &Arc<Notify>) {
        listen::listen(self.pool, self.settings, wake).await;
    }
}
