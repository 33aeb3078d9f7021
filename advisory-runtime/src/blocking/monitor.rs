//! The live locks by name, on blocking connections; as [`crate::monitor`].
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
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_monitor!()]
/// for lock in monitor::locks(conn, &Names::of_program()?)?.locks {
///     println!("{:?}: {} hold it, {} wait", lock.key, lock.holders.len(), lock.waiters.len());
/// }
/// # Ok(())
/// # }
/// ```
pub fn locks<C: Connection>(conn: &mut C, names: &Names) -> Result<Locks, Error> {
    block_on(monitor::read(conn.pg(), names))
}

/// Lists every lease of a table that is held: see [`monitor::leases`].
///
/// # Errors
///
/// [`lease::Error::Database`](crate::lease::Error::Database).
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_monitor!()]
/// let table = advisory_runtime::lease::Table::new();
/// for lease in monitor::leases(conn, &table, &Names::of_program()?)? {
///     println!("{} until {:?}", lease.row.holder, lease.row.expires_at);
/// }
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "diesel-async")]
pub fn leases<C: Connection>(
    conn: &mut C,
    table: &crate::lease::Table,
    names: &Names,
) -> Result<Vec<Lease>, crate::lease::Error> {
    Ok(monitor::named(block_on(table.list_on(conn.pg()))?, names))
}

/// Counts the rows of a table by the states of their claims: see [`monitor::claims`].
///
/// # Errors
///
/// [`claim::Error::Database`](crate::claim::Error::Database).
///
/// # Examples
///
/// ```no_run
/// use advisory_runtime::{blocking::monitor, claim::Claim};
/// use diesel::PgConnection;
///
/// fn backlog<Job: Claim>(conn: &mut PgConnection) -> Result<u64, advisory_runtime::claim::Error> {
///     Ok(monitor::claims::<Job, _>(conn)?.available)
/// }
/// ```
pub fn claims<T: crate::claim::Claim, C: Connection>(
    conn: &mut C,
) -> Result<Claims, crate::claim::Error> {
    block_on(crate::claim::counts_on::<T, _>(conn.pg()))
}

/// Asks who holds what a call did not get: see [`monitor::holders`].
///
/// # Errors
///
/// As [`monitor::holders`].
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
    block_on(monitor::holders_on(conn.pg(), error))
}

/// Cancels the statement that a backend runs: see [`monitor::cancel`].
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_monitor!()]
/// let seen = monitor::locks(conn, &Names::none())?;
/// if let Some(backend) = seen.backend(19_914)
///     && let Signal::Refused { .. } = monitor::cancel(conn, backend)?
/// {
///     println!("this role may not");
/// }
/// # Ok(())
/// # }
/// ```
pub fn cancel<C: Connection>(conn: &mut C, backend: &Backend) -> Result<Signal, Error> {
    block_on(monitor::cancel_on(conn.pg(), backend))
}

/// Terminates a backend's session: see [`monitor::terminate`].
///
/// # Errors
///
/// [`Error::Database`].
///
/// # Examples
///
/// ```no_run
#[doc = example_of_blocking_monitor!()]
/// let seen = monitor::locks(conn, &Names::none())?;
/// if let Some(backend) = seen.backend(19_914)
///     && let Signal::Refused { .. } = monitor::terminate(conn, backend)?
/// {
///     println!("this role may not");
/// }
/// # Ok(())
/// # }
/// ```
pub fn terminate<C: Connection>(conn: &mut C, backend: &Backend) -> Result<Signal, Error> {
    block_on(monitor::terminate_on(conn.pg(), backend))
}
