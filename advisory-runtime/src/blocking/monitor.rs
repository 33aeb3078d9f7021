//! The live locks by name, on blocking connections, like [`crate::monitor`].
//!
//! ```no_run
//! use advisory_runtime::{Error, blocking::monitor, monitor::Names};
//! use diesel::PgConnection;
//!
//! fn waiters(conn: &mut PgConnection) -> Result<usize, Error> {
//!     let locks = monitor::locks(conn, &Names::none())?.locks;
//!     Ok(locks.iter().map(|lock| lock.waiters.len()).sum())
//! }
//! ```

use super::Connection;
use crate::Error;
use crate::driver::block_on;
#[cfg(feature = "diesel-async")]
use crate::monitor::Lease;
use crate::monitor::{self, Backend, Claims, LockHolder, Locks, Names, Refused, Signal};

/// Lists the advisory locks of the connection's database: see [`monitor::locks`].
pub fn locks<C: Connection>(conn: &mut C, names: &Names) -> Result<Locks, Error> {
    block_on(monitor::read(conn.pg(), names))
}

/// Lists every lease of a table that is held, and every key that is done: see [`monitor::leases`].
#[cfg(feature = "diesel-async")]
pub fn leases<C: Connection>(
    conn: &mut C,
    table: &crate::lease::Table,
    names: &Names,
) -> Result<Vec<Lease>, crate::lease::Error> {
    Ok(monitor::named(block_on(table.list_on(conn.pg()))?, names))
}

/// Counts the rows of a table by the states of their claims: see [`monitor::claims`].
pub fn claims<T: crate::claim::Claim, C: Connection>(
    conn: &mut C,
) -> Result<Claims, crate::claim::Error> {
    block_on(crate::claim::counts_on::<T, _>(conn.pg()))
}

/// Finds the holders of a lock or a lease that a call did not get: see [`monitor::holders`].
pub fn holders<C: Connection, E: Refused>(conn: &mut C, error: &E) -> Result<Vec<LockHolder>, E> {
    block_on(error.holders(conn.pg()))
}

/// Cancels the statement that a backend runs: see [`monitor::cancel`].
pub fn cancel<C: Connection>(conn: &mut C, backend: &Backend) -> Result<Signal, Error> {
    block_on(monitor::signal(conn.pg(), backend.cancel_sql()))
}

/// Terminates a backend's session: see [`monitor::terminate`].
pub fn terminate<C: Connection>(conn: &mut C, backend: &Backend) -> Result<Signal, Error> {
    block_on(monitor::signal(conn.pg(), backend.terminate_sql()))
}
