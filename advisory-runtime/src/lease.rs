//! Leases: locks that expire, with fencing tokens.
//!
//! A lease is a row of a table. No connection or transaction holds it; it lasts until it is
//! released or its ttl is over. Use it for work that outlives a transaction, such as a payout run
//! or a report, and [`xact`](crate::xact) for a single transaction. Without the attribute
//! [`advisory_lease`](macro@crate::advisory_lease), [`Leases::acquire`] renews in the background
//! and releases on drop, [`lead`] elects a leader, and [`Table`] has each step as one round trip.
//!
//! The guide explains [leases](crate::guide::leases), what they promise and their table, and
//! [leader election](crate::guide::leadership).
//!
//! ```
//! # #[cfg(feature = "deadpool")]
//! # mod reports {
//! use advisory_runtime::{advisory_lease, lease::Error};
//! use diesel_async::{AsyncPgConnection, pooled_connection::deadpool::Pool};
//!
//! /// Sends the month's report. Instances that start during the day after it do nothing.
//! #[advisory_lease(key = "report:<month>", pool = pool, keep = "24h", on_done = Ok(()))]
//! async fn send_report(pool: &Pool<AsyncPgConnection>, month: &str) -> Result<(), Error> {
//!     // After `Ok` the key is done for a day; after an error it is free for the next try.
//!     Ok(())
//! }
//! # }
//! ```
//!
//! This is *at least once*: if the process dies between the work and the end of the call, the work
//! runs again after the ttl. [`Lease::complete`] makes it *once* for work that ends in a
//! transaction of this database.

mod acquire;
mod body_leases;
mod error;
mod explain;
mod fence;
mod grant;
pub(crate) mod guard;
mod lead;
mod leases;
#[cfg(feature = "testing")]
mod memory;
mod queries;
mod request;
mod row;
pub(crate) mod rows;
pub(crate) mod source;
mod sql;
mod statement;
pub(crate) mod store;
mod table;
mod task;
pub(crate) mod tries;

pub use error::{BusyKey, Error};
pub use fence::IsCurrent;
pub use grant::{FencingToken, Lease};
pub use guard::LeaseGuard;
pub use lead::{lead, lead_until};
pub use leases::{Event, Leases};
#[cfg(feature = "testing")]
pub use memory::InMemory;
pub use request::Request;
pub use row::Row;
pub use source::{Source, sweep};
pub use store::Store;
pub use table::{ADVISORY_LEASE_DOWN, ADVISORY_LEASE_UP, Table};
