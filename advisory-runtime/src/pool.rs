//! Which pools of diesel-async lend connections.

use crate::{Connection, Error};

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
}

#[cfg(feature = "bb8")]
impl Pool for diesel_async::pooled_connection::bb8::Pool<diesel_async::AsyncPgConnection> {
    type Lent<'p> =
        diesel_async::pooled_connection::bb8::PooledConnection<'p, diesel_async::AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Lent<'_>, Error> {
        self.get()
            .await
            .map_err(|error| Error::Pool(Box::new(error)))
    }
}

#[cfg(feature = "deadpool")]
impl Pool for diesel_async::pooled_connection::deadpool::Pool<diesel_async::AsyncPgConnection> {
    type Lent<'p> =
        diesel_async::pooled_connection::deadpool::Object<diesel_async::AsyncPgConnection>;

    async fn connection(&self) -> Result<Self::Lent<'_>, Error> {
        self.get()
            .await
            .map_err(|error| Error::Pool(Box::new(error)))
    }
}
