//! What guests say afterwards.

use crate::bookings;
use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::{BookingId, BookingState};
use lets_store::schema::reviews;
use lets_store::{Refusal, Result};

/// One review a stay, and only of one that is over; a second one replaces the first.
#[advisory_lock(
    key = "review:<booking: uuid>",
    component = "reviews",
    nested = "refuse"
)]
pub async fn write(
    conn: &mut AsyncPgConnection,
    booking: BookingId,
    stars: i32,
    body: &str,
) -> Result<()> {
    if !(1..=5).contains(&stars) {
        return Err(Refusal::Invalid.into());
    }
    if bookings::find(conn, booking).await?.state()? != BookingState::CheckedOut {
        return Err(Refusal::WrongState.into());
    }
    diesel::insert_into(reviews::table)
        .values((
            reviews::booking_id.eq(booking.0),
            reviews::stars.eq(stars),
            reviews::body.eq(body),
        ))
        .on_conflict(reviews::booking_id)
        .do_update()
        .set((reviews::stars.eq(stars), reviews::body.eq(body)))
        .execute(conn)
        .await?;
    Ok(())
}
