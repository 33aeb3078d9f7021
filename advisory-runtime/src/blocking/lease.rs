//! Leases for blocking programs; as [`crate::lease`].
//!
//! The table, the statements, the errors and the promises are those of [`lease`](crate::lease). It
//! needs the feature `diesel-async` as well as `postgres`, although no connection of diesel-async
//! is opened. A thread of this crate, one for the process, renews every lease while its body runs
//! on the caller's thread; no tokio runtime is needed. Each statement is sent on a short-lived
//! thread, so that one without an answer stops nothing else.
//!
//! A blocking body cannot be dropped. So [`LeaseGuard::run`] refuses its result if it returns after
//! the lease was lost, or after `max_hold`. A body that works for long asks
//! [`Lease::is_held`](crate::lease::Lease::is_held) between its steps, and its transactions begin
//! with [`Lease::fence`].
//!
//! **Leave a connection of the pool free for the renewals**, or give the pool a URL by
//! [`WithUrl`](crate::blocking::WithUrl). r2d2 opens no connection that it does not count, so
//! without a URL a renewal waits until a body returns one. If none is free before the lease
//! expires, the lease is lost.
//!
//! ```no_run
//! use advisory_runtime::blocking::lease::{self, Error, Request};
//! use diesel::r2d2::{ConnectionManager, Pool};
//! use diesel::{Connection, PgConnection};
//! use std::time::Duration;
//!
//! /// Credits the account once, however often the webhook is delivered.
//! fn credit(pool: &Pool<ConnectionManager<PgConnection>>, id: &str) -> Result<(), Error> {
//!     let request = Request::text(format!("webhook:{id}")).keep(Duration::from_secs(86_400));
//!     let mut guard = match lease::acquire(pool, request) {
//!         Err(error) if error.is_done() => return Ok(()),
//!         acquired => acquired?,
//!     };
//!     let lease = guard.lease().clone();
//!     let result = guard.run(|| {
//!         let mut conn = advisory_runtime::blocking::Pool::connection(pool)?;
//!         conn.transaction(|conn| {
//!             update_account(conn)?;
//!             lease.complete(conn)
//!         })
//!     })?;
//!     guard.finish(result)
//! }
//! # fn update_account(_: &mut PgConnection) -> Result<(), Error> { Ok(()) }
//! ```

mod guard;
mod leases;
mod table;

pub use crate::lease::{BusyKey, Error, Event, FencingToken, IsCurrent, Request, Row};
pub use guard::{Lease, LeaseGuard};
pub use leases::{Leases, acquire, sweep};
pub use table::Table;
