//! The blocking pools that can provide connections for locks.

use super::Connection;
use crate::PoolError;
use diesel::{Connection as _, PgConnection};
use std::sync::Arc;

/// A pool of blocking connections. With the feature `r2d2`, its pools implement it, with any
/// manager.
///
/// `pool = <expression>` on a plain `fn` takes a pool, a reference or an `Arc`. For another kind of
/// pool, implement this trait on a wrapper.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pool of `PgConnection`",
    label = "expected a pool of r2d2, or `impl advisory_runtime::blocking::Pool`",
    note = "a plain `fn` takes a pool of blocking Diesel; one of bb8 or deadpool is for an `async fn`",
    note = "a lock can also be taken on a connection: `conn = <expression>` in the attribute"
)]
#[cfg_attr(
    not(feature = "r2d2"),
    diagnostic::on_unimplemented(
        note = "for a pool of r2d2, enable the feature `r2d2` of `advisory-runtime`"
    )
)]
pub trait Pool {
    /// A connection of the pool, which does not borrow the pool.
    type Connection: Connection;

    /// Gets a connection, or [`PoolError::new`] of the pool's own error.
    fn connection(&self) -> Result<Self::Connection, PoolError>;

    /// Opens a connection that the pool does not count. A lease or a claim is renewed on it while
    /// bodies hold all of the pool's connections. The error is [`PoolError::dedicated`] of the
    /// connection's own.
    ///
    /// The default implementation always fails, also for r2d2, which counts every connection: give
    /// it a URL with [`WithUrl`].
    fn dedicated(&self) -> Result<PgConnection, PoolError> {
        let none = "this pool opens no connection outside of its count";
        Err(PoolError::dedicated(none))
    }

    /// A number that identifies this pool and its clones among the pools of its type that exist.
    #[doc(hidden)]
    fn identity(&self) -> Option<usize> {
        None
    }
}

/// A pool, and the URL at which leases and claims are renewed while bodies hold all of its
/// connections.
///
/// ```no_run
/// use advisory_runtime::blocking::WithUrl;
/// use advisory_runtime::blocking::lease::Leases;
/// # #[cfg(feature = "r2d2")]
/// use diesel::r2d2::{ConnectionManager, Pool};
/// # #[cfg(feature = "r2d2")]
/// # fn f(url: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::new(ConnectionManager::<diesel::PgConnection>::new(url))?;
/// let leases = Leases::new(WithUrl::new(pool, url));
/// # let _ = leases;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WithUrl<P> {
    pool: P,
    url: Arc<str>,
}

impl<P> WithUrl<P> {
    /// Adds the URL to which the pool connects.
    pub fn new(pool: P, url: &str) -> Self {
        let url = url.into();
        Self { pool, url }
    }
}

/// Leaves out the URL, which can contain a password.
impl<P: std::fmt::Debug> std::fmt::Debug for WithUrl<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("WithUrl");
        debug.field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl<P: Pool> Pool for WithUrl<P> {
    type Connection = P::Connection;

    fn connection(&self) -> Result<P::Connection, PoolError> {
        self.pool.connection()
    }

    fn dedicated(&self) -> Result<PgConnection, PoolError> {
        PgConnection::establish(&self.url).map_err(PoolError::dedicated)
    }

    fn identity(&self) -> Option<usize> {
        Some(self.url.as_ptr().addr())
    }
}

#[cfg(feature = "r2d2")]
impl<M> Pool for diesel::r2d2::Pool<M>
where
    M: diesel::r2d2::ManageConnection<Connection = PgConnection>,
{
    type Connection = diesel::r2d2::PooledConnection<M>;

    fn connection(&self) -> Result<Self::Connection, PoolError> {
        self.get().map_err(PoolError::new)
    }
}

macro_rules! pointer {
    ($($pointer:ty, $identity:expr;)*) => { $(
        #[diagnostic::do_not_recommend]
        impl<P: Pool + ?Sized> Pool for $pointer {
            type Connection = P::Connection;

            fn connection(&self) -> Result<P::Connection, PoolError> {
                P::connection(self)
            }

            fn dedicated(&self) -> Result<PgConnection, PoolError> {
                P::dedicated(self)
            }

            fn identity(&self) -> Option<usize> {
                let identity: fn(&Self) -> Option<usize> = $identity;
                identity(self)
            }
        }
    )* };
}
pointer!(
    &P, |pool| P::identity(pool);
    Arc<P>, |pool| P::identity(pool).or_else(|| Some(Arc::as_ptr(pool).cast::<u8>().addr()));
);
