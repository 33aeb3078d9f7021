//! The live locks by name, on blocking connections; as [`crate::monitor`].

use super::Connection;
use crate::Error;
use crate::driver::answered;
use crate::monitor::{self, Backend, Locks, Names, Signal};
#[cfg(feature = "diesel-async")]
use crate::monitor::{Claims, Lease};

/// Lists the advisory locks of the connection's database: see [`monitor::locks`](crate::monitor::locks).
///
/// # Errors
///
/// [`Error::Database`].
pub fn locks<C: Connection>(conn: &mut C, names: &Names) -> Result<Locks, Error> {
    answered(monitor::read(conn.pg(), names))
}

/// Lists every lease of a table that is held: see [`monitor::leases`](crate::monitor::leases).
///
/// # Errors
///
/// [`Error::Database`].
#[cfg(feature = "diesel-async")]
pub fn leases<C: Connection>(
    conn: &mut C,
    table: &crate::lease::Table,
    names: &Names,
) -> Result<Vec<Lease>, Error> {
    Ok(monitor::named(table.list_blocking(conn.pg())?, names))
}

/// Counts the rows of a table by the states of their claims: see [`monitor::claims`](crate::monitor::claims).
///
/// # Errors
///
/// [`Error::Database`].
#[cfg(feature = "diesel-async")]
pub fn claims<T: crate::claim::Claim, C: Connection>(conn: &mut C) -> Result<Claims, Error> {
    crate::claim::counts_blocking::<T>(conn.pg())
}

/// Cancels the statement that a backend runs: see [`monitor::cancel`](crate::monitor::cancel).
///
/// # Errors
///
/// [`Error::Database`].
pub fn cancel<C: Connection>(conn: &mut C, backend: &Backend) -> Result<Signal, Error> {
    answered(monitor::cancel_on(conn.pg(), backend))
}

/// Terminates a backend's session: see [`monitor::terminate`](crate::monitor::terminate).
///
/// # Errors
///
/// [`Error::Database`].
pub fn terminate<C: Connection>(conn: &mut C, backend: &Backend) -> Result<Signal, Error> {
    answered(monitor::terminate_on(conn.pg(), backend))
}
