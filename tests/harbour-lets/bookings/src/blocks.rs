//! Nights on which a room is not let: a broken boiler, the owner's own holiday.

use advisory_runtime::advisory_lock;
use chrono::NaiveDate;
use diesel_async::AsyncPgConnection;
use lets_domain::RoomId;
use lets_domain::locks::RoomNight;
use lets_store::{Error, Result};

/// Blocks a night that nobody has booked.
#[advisory_lock(key = RoomNight { room, night }, wait = "5s")]
pub async fn block(conn: &mut AsyncPgConnection, room: RoomId, night: NaiveDate) -> Result<bool> {
    Err(Error::Refused)
}
