//! The price of a night: read for every quote, written twice a year.

use advisory_runtime::{Connection, advisory_lock};
use diesel_async::AsyncPgConnection;
use lets_domain::locks::PriceList;
use lets_domain::{PropertyId, Season};
use lets_store::{Error, Result};

/// Quotes run at the same time; none sees half of a new price list.
#[advisory_lock(key = PriceList { property, season }, mode = "shared", wait = "2s")]
pub async fn night<C: Connection>(
    conn: &mut C,
    property: PropertyId,
    season: Season,
) -> Result<(i64, i32)> {
    Err(Error::Refused)
}

/// A new price list; quotes that are being made are waited for.
#[advisory_lock(key = PriceList { property, season }, mode = "exclusive", wait = "30s")]
pub async fn set(
    conn: &mut AsyncPgConnection,
    property: PropertyId,
    season: Season,
) -> Result<i32> {
    Err(Error::Refused)
}
