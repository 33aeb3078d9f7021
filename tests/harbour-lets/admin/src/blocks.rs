//! The owner's own holidays: nights that are blocked at once, on the locks that bookings take.

use advisory_runtime::advisory_lock;
use advisory_runtime::blocking::Connection;
use chrono::NaiveDate;
use diesel::prelude::*;
use lets_domain::RoomId;
use lets_domain::locks::RoomNight;
use lets_store::schema::{blocks, bookings};
use lets_store::{Refusal, Result};

/// Blocks all nights or none.
#[advisory_lock(
    key = "night:<room: int>:<nights*>",
    name = "room-night",
    component = "bookings",
    wait = "5s"
)]
pub fn holiday<C: Connection>(conn: &mut C, room: RoomId, nights: &[NaiveDate]) -> Result<usize> {
    for night in nights {
        let stays = bookings::table
            .filter(bookings::room_id.eq(room.0))
            .filter(bookings::state.ne("cancelled"))
            .filter(bookings::arrives.le(night))
            .filter(bookings::departs.gt(night));
        if stays.count().get_result::<i64>(conn)? > 0 {
            return Err(Refusal::Taken.into());
        }
    }
    let rows: Vec<_> = nights
        .iter()
        .map(|night| {
            (
                blocks::room_id.eq(room.0),
                blocks::night.eq(night),
                blocks::reason.eq("owner"),
            )
        })
        .collect();
    Ok(diesel::insert_into(blocks::table)
        .values(&rows)
        .execute(conn)?)
}

/// Whether a night is blocked; while it is being booked or blocked nobody can tell.
#[advisory_lock(
    key = RoomNight { room, night },
    mode = "shared",
    wait = "never",
    on_held = Ok(None)
)]
pub fn is_blocked(conn: &mut PgConnection, room: RoomId, night: NaiveDate) -> Result<Option<bool>> {
    let of = blocks::table
        .filter(blocks::room_id.eq(room.0))
        .filter(blocks::night.eq(night));
    Ok(Some(of.count().get_result::<i64>(conn)? > 0))
}
