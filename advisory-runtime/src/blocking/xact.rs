//! Transaction-level locks on blocking connections; as [`crate::xact`].
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

/// Opens a transaction that holds the locks; as [`crate::xact::begin`].
///
/// # Locking
///
/// As [`crate::xact::begin`], in one round trip; with [`Wait::Never`](crate::Wait::Never) in two.
///
/// # Errors
///
/// As [`crate::xact::begin`].
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, blocking::xact};
/// use diesel::pg::PgConnection;
///
/// fn f(conn: &mut PgConnection) -> Result<(), Error> {
///     let mut guard = xact::begin(conn, 42)?;
///     let result: Result<(), Error> = work(guard.conn());
///     guard.finish(result)
/// }
/// # fn work(_: &mut PgConnection) -> Result<(), Error> { Ok(()) }
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn begin<C: Connection>(
    conn: &mut C,
    request: impl Into<Request>,
) -> Result<LockGuard<'_, C>, Error> {
    block_on(lock::begin(conn, C::pg, request.into().with_origin()))
}

/// Takes the locks in the middle of an open transaction, which holds them until its end; as
/// [`crate::xact::lock`].
///
/// # Locking
///
/// As [`crate::xact::lock`].
///
/// # Errors
///
/// As [`crate::xact::lock`].
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, blocking::xact};
/// use diesel::Connection;
/// use diesel::pg::PgConnection;
///
/// fn f(conn: &mut PgConnection) -> Result<(), Error> {
///     conn.transaction(|conn| {
///         let account = account_of(conn)?;
///         xact::lock(conn, account)?;
///         // …
///         Ok(())
///     })
/// }
/// # fn account_of(_: &mut PgConnection) -> Result<i64, Error> { Ok(1) }
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn lock<C: Connection>(conn: &mut C, request: impl Into<Request>) -> Result<LockInfo, Error> {
    let request = request.into().with_origin();
    block_on(lock::lock(conn, C::pg, request))
}

/// Takes the lock in the middle of an open transaction if it is free, and returns whether it was;
/// as [`crate::xact::try_lock`].
///
/// # Locking
///
/// As [`crate::xact::try_lock`].
///
/// # Errors
///
/// As [`crate::xact::try_lock`].
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, Request, blocking::xact};
/// use diesel::{Connection, PgConnection};
///
/// fn book(conn: &mut PgConnection) -> Result<bool, Error> {
///     conn.transaction(|conn| {
///         if !xact::try_lock(conn, Request::new(42))? {
///             return Ok(false); // somebody else is booking
///         }
///         // … the work, under the lock until the commit …
///         Ok(true)
///     })
/// }
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn try_lock<C: Connection>(conn: &mut C, request: impl Into<Request>) -> Result<bool, Error> {
    let request = request.into().with_origin();
    block_on(lock::try_lock(conn, C::pg, request))
}
