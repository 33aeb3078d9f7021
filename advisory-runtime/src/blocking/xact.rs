//! Transaction-level locks on blocking connections, like [`crate::xact`].
//!
//! ```no_run
//! use advisory_runtime::{Error, Request, blocking::xact};
//! use diesel::PgConnection;
//!
//! fn book(conn: &mut PgConnection) -> Result<(), Error> {
//!     let mut guard = xact::begin(conn, Request::new(42))?;
//!     let result = insert(guard.conn());
//!     guard.finish(result) // commits `Ok`, rolls back `Err`
//! }
//! # fn insert(_: &mut PgConnection) -> Result<(), Error> { Ok(()) }
//! ```

use super::{Connection, LockGuard, LockInfo};
use crate::driver::block_on;
use crate::{Error, Request, lock};

/// Opens a transaction that holds the locks; like [`crate::xact::begin`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn begin<C: Connection>(
    conn: &mut C,
    request: impl Into<Request>,
) -> Result<LockGuard<'_, C>, Error> {
    block_on(lock::begin(conn, C::pg, request.into().with_origin()))
}

/// Takes the locks in an open transaction, which holds them until its end; like
/// [`crate::xact::lock`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn lock<C: Connection>(conn: &mut C, request: impl Into<Request>) -> Result<LockInfo, Error> {
    let request = request.into().with_origin();
    block_on(lock::lock(conn, C::pg, request))
}

/// Takes the lock in an open transaction if it is free, and returns `true` if it was; like
/// [`crate::xact::try_lock`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn try_lock<C: Connection>(conn: &mut C, request: impl Into<Request>) -> Result<bool, Error> {
    let request = request.into().with_origin();
    block_on(lock::try_lock(conn, C::pg, request))
}
