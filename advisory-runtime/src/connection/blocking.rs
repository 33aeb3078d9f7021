//! Which blocking connections can hold a lock.

use diesel::connection::LoadConnection;
use diesel::pg::{Pg, PgConnection};

/// A blocking connection on which locks can be taken: a [`PgConnection`], or one that a pool lends.
///
/// The pooled connections of r2d2 implement it under the feature `r2d2`. A wrapper of your own implements it by handing out the
/// connection inside.
#[diagnostic::on_unimplemented(
    message = "an advisory lock can't be taken on `{Self}`",
    label = "expected `PgConnection` or a pooled connection of it",
    note = "a plain `fn` takes its lock on blocking Diesel, an `async fn` on diesel-async; for pooled connections enable the \
            feature `r2d2` of `advisory-runtime`; a generic function writes `C: advisory_runtime::blocking::Connection`"
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
impl Connection for diesel::r2d2::PooledConnection<diesel::r2d2::ConnectionManager<PgConnection>> {
    fn pg(&mut self) -> &mut PgConnection {
        self
    }
}
