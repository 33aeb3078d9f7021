//! Leases: locks that expire, with fencing tokens.
//!
//! What `#[advisory_lock(…, scope = "lease", pool = …)]` stands on. A lease is a row of a table, held until it is released or its
//! ttl is over, by no connection and no transaction: for work that outlives both, such as a call of a payment provider, a report,
//! or a webhook that must be handled once. Its body runs in no transaction. A lock that guards one transaction is better taken with
//! [`xact`](crate::xact), which nothing can separate from its commit.

mod event;
mod fence;
mod held;
mod keeper;
mod leases;
mod patience;
mod request;
mod row;
mod schema;
mod sql;
mod standing;
mod statement;
mod table;
mod token;

pub use event::Event;
pub use fence::IsCurrent;
pub use held::Held;
#[doc(hidden)]
pub use held::finish_at;
#[doc(hidden)]
pub use leases::acquire_at;
pub use leases::{Leases, Source};
pub use request::{LONGEST_KEY, Request};
pub use row::Row;
pub use schema::{ADVISORY_LEASE_DOWN, ADVISORY_LEASE_UP};
pub use standing::Lease;
pub use table::Table;
pub use token::FencingToken;
