//! Letters to guests who arrive soon, written into the outbox once for each day and house.

use crate::runs;
use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::PropertyId;
use lets_store::Result;
use lets_store::schema::{bookings, outbox, rooms, runs as done};

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
    let job = format!("reminders {property} {day}");
    let before = done::table.filter(done::job.eq(&job)).count();
    if before.get_result::<i64>(conn).await? > 0 {
        return Ok(0);
    }
    let arrivals: Vec<uuid::Uuid> = bookings::table
        .inner_join(rooms::table)
        .filter(rooms::property_id.eq(property.0))
        .filter(bookings::arrives.eq(day))
        .select(bookings::guest_id)
        .load(conn)
        .await?;
    let letters: Vec<_> = arrivals
        .iter()
        .map(|guest| {
            (
                outbox::address.eq(guest.to_string()),
                outbox::subject.eq(format!("See you on {day}")),
            )
        })
        .collect();
    diesel::insert_into(outbox::table)
        .values(&letters)
        .execute(conn)
        .await?;
    runs::record(conn, &job).await?;
    Ok(letters.len())
}
