//! Which pools of diesel-async can leases and claims use?

use crate::connection::Connection;
use crate::error::Error;
use diesel_async::AsyncPgConnection;

/// A pool of connections: those of bb8 and deadpool, under the features of these names.
pub trait Pool: Sync {
    /// A connection of the pool.
    type Connection<'p>: Connection + Send
    where
        Self: 'p;

    /// Gets a connection.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] with the pool's own error.
    fn connection(&self) -> impl Future<Output = Result<Self::Connection<'_>, Error>> + Send;

    /// Opens a connection like the pool's, which the pool does not count: a lease or a claim is renewed on it while bodies hold all
    /// of the pool's.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`]; always, unless you implement it.
    fn dedicated(&self) -> impl Future<Output = Result<AsyncPgConnection, Error>> + Send {
        let none = "this pool opens no connection beside its own";
        std::future::ready(Err(Error::Pool(none.into())))
    }
}

#[cfg(any(feature = "bb8", feature = "deadpool"))]
fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Pool(Box::new(error))
}

#[cfg(feature = "bb8")]
impl Pool for diesel_async::pooled_connection::bb8::Pool<AsyncPgConnection> {
    type Connection<'p> =
        diesel_async::pooled_connection::bb8::PooledConnection<'p, AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Connection<'_>, Error> {
        self.get().await.map_err(failed)
    }

    async fn dedicated(&self) -> Result<AsyncPgConnection, Error> {
        self.dedicated_connection().await.map_err(failed)
    }
}

#[cfg(feature = "deadpool")]
impl Pool for diesel_async::pooled_connection::deadpool::Pool<AsyncPgConnection> {
    type Connection<'p> = diesel_async::pooled_connection::deadpool::Object<AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Connection<'_>, Error> {
        self.get().await.map_err(failed)
    }

    async fn dedicated(&self) -> Result<AsyncPgConnection, Error> {
        let opened = deadpool::managed::Manager::create(self.manager());
        opened.await.map_err(failed)
    }
}
