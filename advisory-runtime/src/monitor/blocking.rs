//! The functions of [`blocking::monitor`](crate::blocking::monitor): live locks on Diesel's blocking connections.

use super::{Backend, LockHolder, Locks, Names, Refused, Signal, read, signal, sql};
use crate::Error;
use crate::connection::blocking::Connection;
use crate::driver::answered;

/// Lists the advisory locks of the connection's database: see [`monitor::locks`](crate::monitor::locks).
///
/// # Errors
///
/// [`Error::Database`].
pub fn locks<C: Connection>(conn: &mut C, names: &Names) -> Result<Locks, Error> {
    answered(read(conn.pg(), names))
}

/// Lists every lease of a table that is held: see [`monitor::leases`](crate::monitor::leases).
///
/// # Errors
///
/// [`lease::Error::Database`](crate::lease::Error::Database).
#[cfg(feature = "diesel-async")]
pub fn leases<C: Connection>(
    conn: &mut C,
    table: &crate::lease::Table,
    names: &Names,
) -> Result<Vec<super::Lease>, crate::lease::Error> {
    Ok(super::leases::named(table.list_blocking(conn.pg())?, names))
}

/// Counts the rows of a table by the states of their claims: see [`monitor::claims`](crate::monitor::claims).
///
/// # Errors
///
/// [`claim::Error::Database`](crate::claim::Error::Database).
#[cfg(feature = "diesel-async")]
pub fn claims<T: crate::claim::Claim, C: Connection>(
    conn: &mut C,
) -> Result<super::Claims, crate::claim::Error> {
    crate::claim::counts_blocking::<T>(conn.pg())
}

/// Asks who holds what a call did not get: see [`monitor::holders`](crate::monitor::holders).
///
/// # Errors
///
/// As [`monitor::holders`](crate::monitor::holders).
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{Error, blocking::monitor};
///
/// fn tell(error: &Error, conn: &mut diesel::PgConnection) -> Result<(), Error> {
///     for holder in monitor::holders(conn, error)? {
///         eprintln!("{holder}");
///     }
///     Ok(())
/// }
/// ```
pub fn holders<C: Connection, E: Refused>(conn: &mut C, error: &E) -> Result<Vec<LockHolder>, E> {
    super::holders::holders_blocking(conn.pg(), error)
}

/// Cancels the statement that a backend runs: see [`monitor::cancel`](crate::monitor::cancel).
///
/// # Errors
///
/// [`Error::Database`].
pub fn cancel<C: Connection>(conn: &mut C, backend: &Backend) -> Result<Signal, Error> {
    answered(signal(conn.pg(), sql::cancel(backend)))
}

/// Terminates a backend's session: see [`monitor::terminate`](crate::monitor::terminate).
///
/// # Errors
///
/// [`Error::Database`].
pub fn terminate<C: Connection>(conn: &mut C, backend: &Backend) -> Result<Signal, Error> {
    answered(signal(conn.pg(), sql::terminate(backend)))
}
