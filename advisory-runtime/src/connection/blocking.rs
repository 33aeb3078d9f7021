//! The blocking connections that can hold a lock.

use diesel::connection::LoadConnection;
use diesel::pg::{Pg, PgConnection};

/// A blocking connection that can hold locks: a [`PgConnection`], or one from a pool.
///
/// With the feature `r2d2` the connections of its pools implement it, whichever manager opens them.
/// A wrapper of your own returns the connection inside.
#[diagnostic::on_unimplemented(
    message = "an advisory lock can't be taken on `{Self}`",
    label = "expected `PgConnection` or a pooled connection of it",
    note = "a plain `fn` takes its lock on a connection of blocking Diesel, an `async fn` on one of diesel-async; a connection of another \
            client can't hold it",
    note = "a pool goes into the argument `pool`; a generic function writes `C: advisory_runtime::blocking::Connection`; a type of your \
            own around a connection needs `impl advisory_runtime::blocking::Connection`, whose `pg` returns the connection inside",
    note = "`advisory-runtime` works with Diesel 2.3: `cargo tree -i diesel` shows whether the program has another version, or two"
)]
#[cfg_attr(
    not(feature = "r2d2"),
    diagnostic::on_unimplemented(
        note = "for a pooled connection, enable the feature `r2d2` of `advisory-runtime`"
    )
)]
pub trait Connection: LoadConnection<Backend = Pg> {
    /// The PostgreSQL connection itself.
    fn pg(&mut self) -> &mut PgConnection;
}

impl Connection for PgConnection {
    fn pg(&mut self) -> &mut PgConnection {
        self
    }
}

#[cfg(feature = "r2d2")]
impl<M> Connection for diesel::r2d2::PooledConnection<M>
where
    M: diesel::r2d2::ManageConnection<Connection = PgConnection>,
{
    fn pg(&mut self) -> &mut PgConnection {
        self
    }
}
