//! The start of a season: prices are set, and the calendars of a house follow, in one transaction.

use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use lets_bookings::{prices, rooms};
use lets_domain::{Cents, PropertyId, Season};
use lets_store::{Refusal, Result};

/// Opens a season for a house that has rooms.
#[advisory_lock(
    key = "season:<property: uuid>",
    component = "desk",
    isolation = "read committed",
    nested = "refuse",
    wait = "forever"
)]
pub async fn open(
    conn: &mut AsyncPgConnection,
    property: PropertyId,
    season: Season,
    night: Cents,
) -> Result<i32> {
    if rooms::of_property(conn, property).await?.is_empty() {
        return Err(Refusal::WrongState.into());
    }
    prices::set(conn, property, season, night).await
}
