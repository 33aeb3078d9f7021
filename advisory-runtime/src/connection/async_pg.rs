//! The connections of diesel-async that can hold a lock.

use diesel::pg::Pg;
use diesel_async::{AsyncConnection, AsyncPgConnection};

/// A connection that can hold locks: an [`AsyncPgConnection`], or one from a pool.
///
/// Use it as the bound of generic functions (`C: Connection`): it implies the traits that queries
/// need. With the features `bb8` and `deadpool` the connections of these pools implement it,
/// whichever manager opens them. A wrapper of your own returns the connection inside:
///
/// ```
/// # use advisory_runtime::Connection;
/// # use diesel_async::AsyncPgConnection;
/// # use std::ops::{Deref, DerefMut};
/// struct Audited(AsyncPgConnection);
/// # impl Deref for Audited { type Target = AsyncPgConnection; fn deref(&self) -> &AsyncPgConnection { &self.0 } }
/// # impl DerefMut for Audited { fn deref_mut(&mut self) -> &mut AsyncPgConnection { &mut self.0 } }
///
/// impl Connection for Audited {
///     fn pg(&mut self) -> &mut AsyncPgConnection {
///         &mut self.0
///     }
/// }
/// ```
///
/// A wrapper that implements `Deref` and `DerefMut` to the connection has the traits of
/// diesel-async that this one requires.
#[diagnostic::on_unimplemented(
    message = "an advisory lock can't be taken on `{Self}`",
    label = "expected `AsyncPgConnection` or a pooled connection of it",
    note = "an `async fn` takes its lock on a connection of diesel-async, a plain `fn` on one of blocking Diesel; a connection of another \
            client, such as sqlx or SeaORM, can't hold it",
    note = "a pool goes into the argument `pool`; a generic function writes `C: advisory_runtime::Connection`; a type of your own \
            around a connection needs `impl advisory_runtime::Connection`, whose `pg` returns the connection inside, and \
            `Deref` and `DerefMut` to it",
    note = "`advisory-runtime` works with diesel-async 0.7 to 0.9 on Diesel 2.3: `cargo tree -i diesel-async` shows whether the program has \
            another version, or two"
)]
#[cfg_attr(
    not(all(feature = "bb8", feature = "deadpool")),
    diagnostic::on_unimplemented(
        note = "for a pooled connection, enable the feature `bb8` or `deadpool` of `advisory-runtime`"
    )
)]
pub trait Connection: AsyncConnection<Backend = Pg> {
    /// The PostgreSQL connection itself.
    fn pg(&mut self) -> &mut AsyncPgConnection;
}

impl Connection for AsyncPgConnection {
    fn pg(&mut self) -> &mut AsyncPgConnection {
        self
    }
}

impl<C: Connection> Connection for &mut C {
    fn pg(&mut self) -> &mut AsyncPgConnection {
        (**self).pg()
    }
}

#[cfg(feature = "bb8")]
impl<M> Connection for bb8::PooledConnection<'_, M>
where
    M: bb8::ManageConnection<Connection = AsyncPgConnection>,
{
    fn pg(&mut self) -> &mut AsyncPgConnection {
        self
    }
}

#[cfg(feature = "deadpool")]
impl<M> Connection for deadpool::managed::Object<M>
where
    M: deadpool::managed::Manager<Type = AsyncPgConnection>,
{
    fn pg(&mut self) -> &mut AsyncPgConnection {
        self
    }
}
