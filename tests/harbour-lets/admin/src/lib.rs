//! The back office: clerks, accountants, scripts. Blocking Diesel, beside the async server and on the same locks.

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
