//! Letters to guests who arrive soon, written into the outbox once for each day and house.

use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use diesel_async::AsyncPgConnection;
use lets_domain::PropertyId;
use lets_store::{Error, Result};

/// What the reminder is about: a house, and the day that its guests arrive.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    pub property: PropertyId,
    pub day: NaiveDate,
}

/// Writes a house's reminders for a day, once.
#[advisory_lock(
    key = "reminders:<property: uuid>:<day: date>",
    component = "letters",
    wait = "30s"
)]
pub async fn write(
    conn: &mut AsyncPgConnection,
    Arrivals { property, day }: Arrivals,
) -> Result<usize> {
    Err(Error::Refused)
}
