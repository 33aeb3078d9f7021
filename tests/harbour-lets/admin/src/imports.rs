//! Price lists from a spreadsheet.

use advisory_runtime::advisory_lock;
use advisory_runtime::blocking::Connection;
use diesel::prelude::*;
use lets_domain::locks::PriceList;
use lets_domain::{Cents, PropertyId, Season};
use lets_store::schema::prices;
use lets_store::{Refusal, Result};

/// A row of the spreadsheet.
#[derive(Clone, Copy, Debug)]
pub struct PriceRow {
    pub property: PropertyId,
    pub season: Season,
    pub night: Cents,
}

/// Writes one row, for all who quote at once or not at all.
#[advisory_lock(
    key = PriceList { property: row.property, season: row.season },
    wait = "1m",
    on_held = Err(Refusal::Busy.into())
)]
fn write<C: Connection>(conn: &mut C, row: &PriceRow) -> Result<()> {
    let night = prices::night.eq(row.night.0);
    diesel::insert_into(prices::table)
        .values((
            prices::property_id.eq(row.property.0),
            prices::season.eq(row.season.as_str()),
            night,
            prices::version.eq(1),
        ))
        .on_conflict((prices::property_id, prices::season))
        .do_update()
        .set((night, prices::version.eq(prices::version + 1)))
        .execute(conn)?;
    Ok(())
}

/// Imports a whole spreadsheet in one transaction; one import at a time, so that two never take their lists in two orders.
#[advisory_lock(
    key = "price-import",
    component = "prices",
    wait = "2m",
    max_hold = "5m"
)]
pub fn import<C: Connection>(conn: &mut C, rows: &[PriceRow]) -> Result<usize> {
    for row in rows {
        if !row.night.is_positive() {
            return Err(Refusal::Invalid.into());
        }
        write(conn, row)?;
    }
    Ok(rows.len())
}
