//! Session-level locks on blocking connections, like [`crate::session`].
//!
//! Dropping a guard that owns its connection rolls back and releases the lock at once, and the
//! connection goes back to its pool.
//!
//! ```no_run
//! use advisory_runtime::{Error, Request, blocking::session};
//! use diesel::PgConnection;
//!
//! fn rebuild(conn: &mut PgConnection) -> Result<(), Error> {
//!     let mut guard = session::acquire(conn, Request::new(42))?;
//!     let result = in_steps(guard.conn()); // each step commits by itself
//!     guard.finish(result)
//! }
//! # fn in_steps(_: &mut PgConnection) -> Result<(), Error> { Ok(()) }
//! ```

use super::{Connection, LockGuard, OwnedLockGuard, Pool};
use crate::driver::block_on;
use crate::{Error, OwnedLockError, PoolError, Request, lock, pooler};

/// Takes session-level locks; like [`crate::session::acquire`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn acquire<C: Connection>(
    conn: &mut C,
    request: impl Into<Request>,
) -> Result<LockGuard<'_, C>, Error> {
    block_on(lock::acquire(conn, C::pg, request.into().with_origin()))
}

/// Takes session-level locks on a connection that the guard owns, a `PgConnection` or a pooled one
/// of r2d2; like [`crate::session::acquire_owned`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn acquire_owned<C: Connection>(
    connection: C,
    request: impl Into<Request>,
) -> Result<OwnedLockGuard<C>, OwnedLockError<C>> {
    let request = request.into().with_origin();
    block_on(lock::acquire_owned(connection, C::pg, request))
}

/// Takes session-level locks on a connection of a pool, which keeps the connection during the wait;
/// like [`crate::session::acquire_from`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn acquire_from<P: Pool + ?Sized>(
    pool: &P,
    request: impl Into<Request>,
) -> Result<OwnedLockGuard<P::Connection>, Error> {
    let connect = || std::future::ready(pool.connection());
    let request = request.into().with_origin();
    block_on(lock::acquire_from(connect, Connection::pg, request))
}

/// Checks with two connections of a pool that session-level locks exclude each other; like
/// [`crate::session::verify`]. [`Error::Pool`] if the pool does not give two connections at once.
///
/// r2d2 tests each connection with a prepared statement, which fails on some poolers. With those,
/// build the pool with `test_on_check_out(false)`.
pub fn verify<P: Pool + ?Sized>(pool: &P) -> Result<(), Error> {
    let mut first = pool.connection()?;
    let mut second = pool.connection().map_err(PoolError::of_second)?;
    block_on(pooler::verify(first.pg(), second.pg()))
}
