//! The blocking pools that locks can take connections from.

use super::Connection;
use crate::PoolError;
use std::sync::Arc;

/// A pool of blocking connections, with any manager: r2d2, under the feature of this name.
///
/// `pool = <expression>` on a plain `fn` takes one, or a reference or an `Arc` of one. For another kind of pool, implement this trait
/// on a type of your own around it.
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::PoolError;
/// use advisory_runtime::blocking::Pool;
/// use diesel::{Connection, PgConnection};
///
/// /// Opens a connection for each call.
/// struct Direct(String);
///
/// impl Pool for Direct {
///     type Connection = PgConnection;
///
///     fn connection(&self) -> Result<PgConnection, PoolError> {
///         PgConnection::establish(&self.0).map_err(PoolError::new)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pool of `PgConnection`",
    label = "expected a pool of r2d2, or `impl advisory_runtime::blocking::Pool`",
    note = "a plain `fn` takes its lock on blocking Diesel, an `async fn` on diesel-async; for a connection from elsewhere, write \
            `conn = <expression>` instead of `pool`"
)]
#[cfg_attr(
    not(feature = "r2d2"),
    diagnostic::on_unimplemented(
        note = "for a pool of r2d2, enable the feature `r2d2` of `advisory-runtime`"
    )
)]
pub trait Pool {
    /// A connection of the pool, which does not borrow it.
    type Connection: Connection;

    /// Gets a connection.
    ///
    /// # Errors
    ///
    /// [`PoolError::new`] of the pool's own error.
    fn connection(&self) -> Result<Self::Connection, PoolError>;
}

#[cfg(feature = "r2d2")]
impl<M> Pool for diesel::r2d2::Pool<M>
where
    M: diesel::r2d2::ManageConnection<Connection = diesel::PgConnection>,
{
    type Connection = diesel::r2d2::PooledConnection<M>;

    fn connection(&self) -> Result<Self::Connection, PoolError> {
        self.get().map_err(PoolError::new)
    }
}

macro_rules! behind {
    ($($pointer:ty),*) => { $(
        #[diagnostic::do_not_recommend]
        impl<P: Pool + ?Sized> Pool for $pointer {
            type Connection = P::Connection;

            fn connection(&self) -> Result<P::Connection, PoolError> {
                P::connection(self)
            }
        }
    )* };
}
behind!(&P, Arc<P>);
