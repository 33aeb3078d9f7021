//! Price lists from a spreadsheet.

use advisory_runtime::advisory_lock;
use advisory_runtime::blocking::Connection;
use lets_domain::locks::PriceList;
use lets_domain::{PropertyId, Season};
use lets_store::{Error, Result};

/// A row of the spreadsheet.
#[derive(Clone, Copy, Debug)]
pub struct PriceRow {
    pub property: PropertyId,
    pub season: Season,
}

/// Writes one row, for all who quote at once or not at all.
#[advisory_lock(
    key = PriceList { property: row.property, season: row.season },
    wait = "1m",
    on_held = Err(Error::Refused)
)]
fn write<C: Connection>(conn: &mut C, row: &PriceRow) -> Result<()> {
    Err(Error::Refused)
}

/// Imports a whole spreadsheet in one transaction; one import at a time, so that two never take their lists in two orders.
#[advisory_lock(
    key = "price-import",
    component = "prices",
    wait = "2m",
    max_hold = "5m"
)]
pub fn import<C: Connection>(conn: &mut C) -> Result<usize> {
    Err(Error::Refused)
}
