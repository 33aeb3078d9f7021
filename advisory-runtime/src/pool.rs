//! Which pools of diesel-async lend connections.

use crate::{Connection, Error};
use diesel_async::AsyncPgConnection;
use std::time::Duration;
use tokio::sync::Semaphore;

/// A pool that lends connections: those of bb8 and deadpool, under the features of these names.
pub trait Pool: Sync {
    /// What it lends.
    type Lent<'p>: Connection + Send
    where
        Self: 'p;

    /// Borrows a connection.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] with the pool's own error.
    fn connection(&self) -> impl Future<Output = Result<Self::Lent<'_>, Error>> + Send;

    /// Opens a connection as the pool's are, which the pool does not count: a lease or a claim is renewed on it where bodies hold
    /// the pool's.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`]; where it is not written, always.
    fn dedicated(&self) -> impl Future<Output = Result<AsyncPgConnection, Error>> + Send {
        let none = "this pool opens no connection beside its own";
        std::future::ready(Err(Error::Pool(none.into())))
    }

    /// Where leases are in place of a database.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    fn memory(&self) -> Option<&crate::lease::InMemory> {
        None
    }
}

/// Connections beside the pools': few, for a server has few.
pub(crate) static BESIDE: Semaphore = Semaphore::const_new(2);

/// How long a renewal waits for the pool, before it opens a connection of its own.
pub(crate) fn patience(renew: Duration) -> Duration {
    (renew / 8).clamp(Duration::from_millis(5), Duration::from_millis(500))
}

#[cfg(feature = "bb8")]
impl Pool for diesel_async::pooled_connection::bb8::Pool<AsyncPgConnection> {
    type Lent<'p> = diesel_async::pooled_connection::bb8::PooledConnection<'p, AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Lent<'_>, Error> {
        self.get()
            .await
            .map_err(|error| Error::Pool(Box::new(error)))
    }

    async fn dedicated(&self) -> Result<AsyncPgConnection, Error> {
        self.dedicated_connection()
            .await
            .map_err(|error| Error::Pool(Box::new(error)))
    }
}

#[cfg(feature = "deadpool")]
impl Pool for diesel_async::pooled_connection::deadpool::Pool<AsyncPgConnection> {
    type Lent<'p> = diesel_async::pooled_connection::deadpool::Object<AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Lent<'_>, Error> {
        self.get()
            .await
            .map_err(|error| Error::Pool(Box::new(error)))
    }

    async fn dedicated(&self) -> Result<AsyncPgConnection, Error> {
        deadpool::managed::Manager::create(self.manager())
            .await
            .map_err(|error| Error::Pool(Box::new(error)))
    }
}
