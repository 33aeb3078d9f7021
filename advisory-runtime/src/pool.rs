//! The pools that leases and claims can use.

use crate::connection::Connection;
use crate::error::Error;
use diesel_async::AsyncPgConnection;

/// A pool of connections, with any manager: bb8 and deadpool, under the features of these names.
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

    /// Opens a connection like the pool's that the pool does not count. A lease or a claim is renewed on it while bodies hold all of
    /// the pool's connections.
    ///
    /// # Errors
    ///
    /// [`Error::Pool`]. The default implementation always fails.
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
impl<M> Pool for bb8::Pool<M>
where
    M: bb8::ManageConnection<Connection = AsyncPgConnection, Error: std::error::Error + Sync>,
{
    type Connection<'p> = bb8::PooledConnection<'p, M>;

    async fn connection(&self) -> Result<Self::Connection<'_>, Error> {
        self.get().await.map_err(failed)
    }

    async fn dedicated(&self) -> Result<AsyncPgConnection, Error> {
        self.dedicated_connection().await.map_err(failed)
    }
}

#[cfg(feature = "deadpool")]
impl<M> Pool for deadpool::managed::Pool<M>
where
    M: deadpool::managed::Manager<Type = AsyncPgConnection, Error: std::error::Error + Send + Sync>
        + 'static,
{
    type Connection<'p> = deadpool::managed::Object<M>;

    async fn connection(&self) -> Result<Self::Connection<'_>, Error> {
        self.get().await.map_err(failed)
    }

    async fn dedicated(&self) -> Result<AsyncPgConnection, Error> {
        self.manager().create().await.map_err(failed)
    }
}
