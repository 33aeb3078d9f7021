//! The pools that locks, leases and claims can take connections from.

use crate::Wait;
use crate::connection::Connection;
use crate::debug::bodies;
use crate::driver::timeout;
use crate::error::PoolError;
use diesel_async::AsyncPgConnection;
#[cfg(feature = "bb8")]
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A pool of connections: bb8's and deadpool's with any manager, under the features of these names.
///
/// `pool = <expression>` in the attribute takes one, or a reference or an `Arc` of one. For another
/// kind of pool, implement this trait on a type of your own that contains it. A lock needs only
/// [`connection`](Self::connection).
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Pool, PoolError};
/// use diesel_async::{AsyncConnection, AsyncPgConnection};
///
/// /// Opens a connection for each call.
/// struct Direct(String);
///
/// impl Pool for Direct {
///     type Connection<'p> = AsyncPgConnection;
///
///     async fn connection(&self) -> Result<AsyncPgConnection, PoolError> {
///         AsyncPgConnection::establish(&self.0).await.map_err(PoolError::new)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pool of `AsyncPgConnection`",
    label = "expected a pool of bb8 or deadpool, or `impl advisory_runtime::Pool`",
    note = "an `async fn` takes a pool of diesel-async, such as bb8's; one of r2d2 is for a plain `fn`",
    note = "a worker, a claim or a lease takes the pool itself, because it needs more than one connection; a lock can also be taken on a \
            connection: `conn = <expression>` in the attribute"
)]
#[cfg_attr(
    not(all(feature = "bb8", feature = "deadpool")),
    diagnostic::on_unimplemented(
        note = "for these pools, enable the feature `bb8` or `deadpool` of `advisory-runtime`"
    )
)]
pub trait Pool: Sync {
    /// A connection of the pool.
    type Connection<'p>: Connection + Send
    where
        Self: 'p;

    /// Gets a connection, or [`PoolError::new`] of the pool's own error.
    fn connection(&self) -> impl Future<Output = Result<Self::Connection<'_>, PoolError>> + Send;

    /// Like [`connection`](Self::connection), for one that does not borrow the pool:
    /// [`session::acquire_from`](crate::session::acquire_from) stores it with its lock. The default
    /// implementation always fails.
    fn owned_connection(
        &self,
    ) -> impl Future<Output = Result<Self::Connection<'static>, PoolError>> + Send
    where
        Self: 'static,
    {
        let none = "this pool hands out no connection that does not borrow it";
        std::future::ready(Err(PoolError::new(none)))
    }

    /// Opens a connection like the pool's that the pool does not count. Leases and claims are
    /// renewed on it while bodies hold all of the pool's connections, or block the threads of these
    /// connections. The error is [`PoolError::dedicated`] of the pool's own; the default
    /// implementation always fails.
    fn dedicated(&self) -> impl Future<Output = Result<AsyncPgConnection, PoolError>> + Send {
        let none = "this pool opens no connection outside of its count";
        std::future::ready(Err(PoolError::dedicated(none)))
    }

    /// A number that this pool shares only with its clones. One statement renews all rows of one
    /// pool.
    #[doc(hidden)]
    fn identity(&self) -> Option<usize> {
        None
    }
}

macro_rules! pointer {
    ($pointer:ty, $identity:expr $(, $bound:ident)?) => {
        #[diagnostic::do_not_recommend]
        impl<P: Pool $(+ $bound)? + ?Sized> Pool for $pointer {
            type Connection<'p>
                = P::Connection<'p>
            where
                Self: 'p;

            async fn connection(&self) -> Result<Self::Connection<'_>, PoolError> {
                P::connection(self).await
            }

            async fn owned_connection(&self) -> Result<Self::Connection<'static>, PoolError>
            where
                Self: 'static,
            {
                P::owned_connection(self).await
            }

            async fn dedicated(&self) -> Result<AsyncPgConnection, PoolError> {
                P::dedicated(self).await
            }

            fn identity(&self) -> Option<usize> {
                let identity: fn(&Self) -> Option<usize> = $identity;
                identity(self)
            }
        }
    };
}
pointer!(&P, |pool| P::identity(pool));
pointer!(
    Arc<P>,
    |pool| P::identity(pool).or_else(|| Some(Arc::as_ptr(pool).cast::<u8>().addr())),
    Send
);

/// The time that [`two`] waits for each connection. A pool of size 1 may never give the second.
const LIMIT: Duration = Duration::from_secs(10);

/// The time after which a call with `wait = "never"` gives up on the pool.
const NEVER: Duration = Duration::from_secs(5);

pub(crate) async fn connection_for<C>(
    wait: Wait,
    connection: impl Future<Output = Result<C, PoolError>>,
) -> Result<C, PoolError> {
    let connected = match wait {
        Wait::Never => timeout(NEVER, connection).await.unwrap_or_else(|| {
            let none = format!("it gave none within {NEVER:?}, and the call does not wait");
            Err(PoolError::new(none))
        }),
        _ => connection.await,
    };
    connected.map_err(|error| error.inside_body(bodies::is_inside_body()))
}

pub(crate) async fn two<P: Pool + ?Sized>(
    pool: &P,
) -> Result<(P::Connection<'_>, P::Connection<'_>), PoolError> {
    let Some(first) = timeout(LIMIT, pool.connection()).await else {
        let none = format!("it gave none within {LIMIT:?}");
        return Err(PoolError::new(none));
    };
    let first = first?;
    match timeout(LIMIT, pool.connection()).await {
        Some(Ok(second)) => Ok((first, second)),
        Some(Err(error)) => Err(error.of_second()),
        None => Err(PoolError::new(format!(
            "it must give two connections at once, so its maximum size must be at least 2; for the second one it did not answer within {LIMIT:?}"
        ))),
    }
}

#[cfg(feature = "bb8")]
impl<M> Pool for bb8::Pool<M>
where
    M: bb8::ManageConnection<Connection = AsyncPgConnection, Error: std::error::Error + Sync>,
{
    type Connection<'p> = bb8::PooledConnection<'p, M>;

    async fn connection(&self) -> Result<Self::Connection<'_>, PoolError> {
        Bb8TimedOut::explain(self, self.get().await).await
    }

    async fn owned_connection(&self) -> Result<Self::Connection<'static>, PoolError> {
        Bb8TimedOut::explain(self, self.get_owned().await).await
    }

    async fn dedicated(&self) -> Result<AsyncPgConnection, PoolError> {
        self.dedicated_connection()
            .await
            .map_err(PoolError::dedicated)
    }

    /// Clones share an address, which bb8 shows only in its `Debug` text.
    fn identity(&self) -> Option<usize> {
        let shown = format!("{self:?}");
        let (_, address) = shown.split_once("0x")?;
        usize::from_str_radix(address.trim_end_matches(')'), 16).ok()
    }
}

/// The time limit of the attempt that shows why bb8 has no connection.
#[cfg(feature = "bb8")]
const REASON: Duration = Duration::from_secs(2);

/// A pool of bb8 gave no connection within its `connection_timeout`. bb8 repeats a failed attempt
/// until then and hides its error. If the pool is empty, one more attempt, outside of its count,
/// shows the error.
#[cfg(feature = "bb8")]
#[derive(Debug)]
struct Bb8TimedOut {
    /// The number of connections of the pool, all of them in use.
    connections: u32,
    /// The error of a further one.
    reason: Option<Box<dyn std::error::Error + Send + Sync>>,
}

#[cfg(feature = "bb8")]
impl Bb8TimedOut {
    async fn explain<M, C>(
        pool: &bb8::Pool<M>,
        got: Result<C, bb8::RunError<M::Error>>,
    ) -> Result<C, PoolError>
    where
        M: bb8::ManageConnection<Error: std::error::Error + Sync>,
    {
        if !matches!(got, Err(bb8::RunError::TimedOut)) {
            return got.map_err(PoolError::new);
        }
        let connections = pool.state().connections;
        let opened = match connections {
            0 => timeout(REASON, pool.dedicated_connection()).await,
            _ => None,
        };
        let reason = opened.and_then(Result::err);
        Err(PoolError::new(Self {
            connections,
            reason: reason.map(|reason| Box::new(reason) as _),
        }))
    }
}

#[cfg(feature = "bb8")]
impl fmt::Display for Bb8TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bb8 gave none within its `connection_timeout`; ")?;
        match (&self.reason, self.connections) {
            (Some(reason), _) => write!(f, "a new connection fails: {reason}"),
            (None, 0) => f.write_str(
                "it has no connection, and an `error_sink` of its builder would show why none could be opened",
            ),
            (None, connections) => write!(
                f,
                "connections in use: {connections}; raise `max_size`, or use them for a shorter time"
            ),
        }
    }
}

#[cfg(feature = "bb8")]
impl std::error::Error for Bb8TimedOut {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.reason.as_ref()?.source()
    }
}

#[cfg(feature = "deadpool")]
impl<M> Pool for deadpool::managed::Pool<M>
where
    M: deadpool::managed::Manager<Type = AsyncPgConnection, Error: std::error::Error + Send + Sync>
        + 'static,
{
    type Connection<'p> = deadpool::managed::Object<M>;

    async fn connection(&self) -> Result<Self::Connection<'_>, PoolError> {
        self.get().await.map_err(PoolError::new)
    }

    async fn owned_connection(&self) -> Result<Self::Connection<'static>, PoolError> {
        self.get().await.map_err(PoolError::new)
    }

    async fn dedicated(&self) -> Result<AsyncPgConnection, PoolError> {
        self.manager().create().await.map_err(PoolError::dedicated)
    }

    /// The address of the manager, which its clones share.
    fn identity(&self) -> Option<usize> {
        Some(std::ptr::from_ref(self.manager()).addr())
    }
}
