//! The back office: clerks, accountants, scripts. Blocking Diesel, next to the async server and with the same locks.

#![expect(
    deprecated,
    unused_variables,
    reason = "the tests read the lock sites, and no body runs"
)]

pub mod audit;
pub mod backfill;
pub mod blocks;
pub mod erasure;
pub mod imports;
pub mod ledger;
pub mod reports;
pub mod rooms;

use lets_store::BlockingPool;

#[derive(Clone)]
pub struct Office {
    pub pool: BlockingPool,
}
