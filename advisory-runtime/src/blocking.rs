//! Locks, leases and claims on Diesel's blocking connections.
//!
//! `#[advisory_lock]` on a plain `fn` expands to calls of these functions. Each function sends the
//! statements, returns the errors and gives the guarantees of the async function of its name, with
//! two differences. A blocking body cannot be dropped, so `max_hold` is checked when it returns,
//! and a commit that comes too late is refused. And nothing is cancelled, because no statement runs
//! when a panic unwinds through the call.
//!
//! ```
//! # #[cfg(feature = "postgres")]
//! # mod booking {
//! use advisory_runtime::advisory_lock;
//! use diesel::{PgConnection, QueryResult, RunQueryDsl};
//!
//! #[advisory_lock(key = "<room>:<day>")]
//! fn book(conn: &mut PgConnection, room: i64, day: &str) -> QueryResult<usize> {
//!     diesel::sql_query("INSERT INTO booking …").execute(conn)
//! }
//! # }
//! ```

pub mod claim;
#[cfg(feature = "diesel-async")]
pub mod lease;
#[cfg(feature = "migrations")]
pub mod migrations;
pub mod monitor;
mod pool;
mod reach;
pub mod session;
pub mod xact;

pub use crate::connection::blocking::Connection;
use diesel::pg::PgConnection;
pub use pool::{Pool, WithUrl};

/// Describes a lock that is held on a blocking connection.
pub type LockInfo = crate::LockInfo<PgConnection>;

/// The guard of one lock or several on a blocking connection, from [`xact::begin`] and
/// [`session::acquire`].
pub type LockGuard<'o, O> = crate::LockGuard<'o, O, PgConnection>;

/// The guard of session-level locks that owns its blocking connection, from
/// [`session::acquire_owned`] and [`session::acquire_from`].
pub type OwnedLockGuard<C> = crate::OwnedLockGuard<C, PgConnection>;
