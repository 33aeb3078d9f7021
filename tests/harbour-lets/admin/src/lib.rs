//! The back office: clerks, accountants, scripts. Blocking Diesel, next to the async server and with the same locks.

pub mod audit;
pub mod backfill;
pub mod blocks;
pub mod erasure;
pub mod imports;
pub mod ledger;
pub mod office;
pub mod reports;
pub mod rooms;

pub use office::Office;
