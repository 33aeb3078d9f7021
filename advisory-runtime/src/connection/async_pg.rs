//! Which connections of diesel-async can hold a lock.

use diesel::pg::Pg;
use diesel_async::{AsyncConnection, AsyncPgConnection};

/// A connection on which locks can be taken: an [`AsyncPgConnection`], or one that a pool lends.
///
/// Bound generic functions by it (`C: Connection`): it implies what queries need, and gives the lock a way to cancel a
/// statement that a dropped future leaves behind. The pooled connections of bb8 and deadpool implement it under the
/// features of these names. A wrapper of your own implements it by handing out the connection inside:
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
#[diagnostic::on_unimplemented(
    message = "an advisory lock can't be taken on `{Self}`",
    label = "expected `AsyncPgConnection` or a pooled connection of it",
    note = "for pooled connections enable the feature `bb8` or `deadpool` of `advisory-runtime`; a generic function writes `C: advisory_runtime::Connection`"
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
impl Connection for diesel_async::pooled_connection::bb8::PooledConnection<'_, AsyncPgConnection> {
    fn pg(&mut self) -> &mut AsyncPgConnection {
        self
    }
}

#[cfg(feature = "deadpool")]
impl Connection for diesel_async::pooled_connection::deadpool::Object<AsyncPgConnection> {
    fn pg(&mut self) -> &mut AsyncPgConnection {
        self
    }
}
