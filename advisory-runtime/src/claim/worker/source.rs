//! The connections of a worker: those on which it claims, and those on which its rows are renewed
//! and ended.

use super::Settings;
use crate::PoolError;
use crate::claim::table::Claim;
use crate::claim::{Claimed, Error};
use crate::rows::Reach;
use std::sync::Arc;
use tokio::sync::Notify;
#[cfg(feature = "diesel-async")]
use {
    super::listen,
    crate::rows::{Borrowed, Pooled},
    crate::{Connection as _, Pool},
    diesel_async::AsyncPgConnection,
};

/// A pool, of either kind.
pub(crate) trait Source<'w, T: Claim> {
    /// Renews and ends rows.
    type Reach: Reach;
    type Connection: Send;

    /// Whether a body is dropped when its row is lost.
    const DROPS_BODIES: bool;

    fn identity(&self) -> Option<usize>;

    fn reach(&self) -> Self::Reach;

    /// A connection of the pool; or a fresh one outside of it, if it opens one.
    fn connection(
        &self,
        is_fresh: bool,
    ) -> impl Future<Output = Result<Self::Connection, PoolError>> + Send;

    /// Claims up to `limit` rows. If it is dropped, the connection is not used again.
    fn claim(
        &self,
        conn: Self::Connection,
        settings: &Arc<Settings<'w, T>>,
        limit: u32,
        passes_over: bool,
    ) -> impl Future<Output = Result<Vec<Claimed<T>>, Error>> + Send;

    /// Wakes the worker up when there may be new rows. Returns if it never does so.
    fn listen(
        &self,
        settings: &Settings<'w, T>,
        wake: &Arc<Notify>,
    ) -> impl Future<Output = ()> + Send;
}

/// A pool of diesel-async.
#[cfg(feature = "diesel-async")]
pub(super) struct AsyncSource<'p, P>(pub(super) &'p P);

/// A connection of the pool, or a fresh one outside of it.
#[cfg(feature = "diesel-async")]
pub(super) enum AsyncClaiming<C> {
    Pooled(C),
    Fresh(Box<AsyncPgConnection>),
}

#[cfg(feature = "diesel-async")]
impl<'w, 'p, T: Claim, P: Pool + Clone + Send + 'static> Source<'w, T> for AsyncSource<'p, P> {
    type Reach = Pooled<P>;
    type Connection = AsyncClaiming<P::Connection<'p>>;

    const DROPS_BODIES: bool = true;

    fn identity(&self) -> Option<usize> {
        self.0.identity()
    }

    fn reach(&self) -> Pooled<P> {
        Pooled::new(self.0.clone())
    }

    async fn connection(&self, is_fresh: bool) -> Result<Self::Connection, PoolError> {
        if is_fresh && let Ok(conn) = self.0.dedicated().await {
            return Ok(AsyncClaiming::Fresh(Box::new(conn)));
        }
        Ok(AsyncClaiming::Pooled(self.0.connection().await?))
    }

    async fn claim(
        &self,
        conn: Self::Connection,
        settings: &Arc<Settings<'w, T>>,
        limit: u32,
        passes_over: bool,
    ) -> Result<Vec<Claimed<T>>, Error> {
        match conn {
            AsyncClaiming::Pooled(conn) => {
                let mut borrowed = Borrowed::new(conn);
                let taken = settings.take(borrowed.pg(), limit, passes_over).await;
                borrowed.record_answer();
                taken
            }
            AsyncClaiming::Fresh(conn) => {
                let mut borrowed = Borrowed::new(*conn);
                let taken = settings.take(borrowed.pg(), limit, passes_over).await;
                borrowed.record_answer();
                taken
            }
        }
    }

    async fn listen(&self, settings: &Settings<'w, T>, wake: &Arc<Notify>) {
        listen::listen(self.0, settings, wake).await;
    }
}
