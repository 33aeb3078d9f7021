//! Nights on which a room is not let: a broken boiler, the owner's own holiday.

use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::RoomId;
use lets_domain::locks::RoomNight;
use lets_store::Result;
use lets_store::schema::{blocks, bookings};

/// Blocks a night that nobody has booked.
#[advisory_lock(key = RoomNight { room, night }, wait = "5s")]
pub async fn block(
    conn: &mut AsyncPgConnection,
    room: RoomId,
    night: NaiveDate,
    reason: &str,
) -> Result<bool> {
    let stays = bookings::table
        .filter(bookings::room_id.eq(room.0))
        .filter(bookings::arrives.le(night))
        .filter(bookings::departs.gt(night))
        .filter(bookings::state.ne("cancelled"));
    if stays.count().get_result::<i64>(conn).await? > 0 {
        return Ok(false);
    }
    diesel::insert_into(blocks::table)
        .values((
            blocks::room_id.eq(room.0),
            blocks::night.eq(night),
            blocks::reason.eq(reason),
        ))
        .execute(conn)
        .await?;
    Ok(true)
}

/// Lets a night again.
#[advisory_lock(key = RoomNight { room, night }, wait = "5s")]
pub async fn unblock(
    conn: &mut AsyncPgConnection,
    room: RoomId,
    night: NaiveDate,
) -> Result<usize> {
    let gone = blocks::table
        .filter(blocks::room_id.eq(room.0))
        .filter(blocks::night.eq(night));
    Ok(diesel::delete(gone).execute(conn).await?)
}
