//! Leases: locks that expire, with fencing tokens.
//!
//! A lease is a row of a table, held until it is released or its ttl is over, by no connection and no transaction: for work that
//! outlives both, such as a payout run or a report. Guard a single transaction with [`xact`](crate::xact) instead. The attribute's
//! `scope = "lease"` uses this module; without it, [`Leases::acquire`] renews in the background and releases what is dropped,
//! [`lead`] keeps one process of several the leader, and [`Table`] has each step as one round trip.
//!
//! The guide explains [leases](crate::guide::leases), their promises and their table, and
//! [leader election](crate::guide::leadership).
//!
//! ```
//! # #[cfg(feature = "deadpool")]
//! # mod reports {
//! use advisory_runtime::{Error, advisory_lock};
//! use diesel_async::{AsyncPgConnection, pooled_connection::deadpool::Pool};
//!
//! /// Sends the month's report. The instances that tick at the same time, or late, do nothing.
//! #[advisory_lock(key = "report:<month>", scope = "lease", pool = pool, keep = "24h", wait = "never", on_held = Ok(()))]
//! async fn send_report(pool: &Pool<AsyncPgConnection>, month: &str) -> Result<(), Error> {
//!     // Nobody else sends it meanwhile. After `Ok` the key stays taken for a day; after an error it is free for the next try.
//!     Ok(())
//! }
//! # }
//! ```
//!
//! This is *at least once*: if the process dies after its work and before the end of the call, the work runs again when the ttl is
//! over. [`Lease::complete`] makes it *once*, for work that ends in a transaction of this database.

mod backoff;
mod event;
mod fence;
mod grant;
mod held;
mod holding;
mod keeper;
mod lead;
mod leases;
#[cfg(feature = "testing")]
mod memory;
mod queries;
mod request;
mod row;
mod running;
mod source;
mod sql;
mod statement;
mod steps;
mod store;
mod table;

pub use event::Event;
pub use fence::IsCurrent;
pub use grant::{FencingToken, Lease};
pub use held::Held;
#[doc(hidden)]
pub use held::finish_at;
pub use lead::{lead, lead_until};
pub use leases::Leases;
#[cfg(feature = "testing")]
pub use memory::InMemory;
pub use request::{LONGEST_KEY, Request};
pub use row::Row;
#[doc(hidden)]
pub use source::acquire_at;
pub use source::{Source, sweep};
pub use store::Store;
pub use table::{ADVISORY_LEASE_DOWN, ADVISORY_LEASE_UP, Table};
