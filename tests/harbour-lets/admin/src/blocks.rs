//! The owner's own holidays: nights that are blocked at once, on the locks that bookings take.

use advisory_runtime::advisory_lock;
use advisory_runtime::blocking::Connection;
use chrono::NaiveDate;
use diesel::PgConnection;
use lets_domain::RoomId;
use lets_domain::locks::RoomNight;
use lets_store::{Error, Result};

/// Blocks all nights or none.
#[advisory_lock(
    key = "night:<room: int>:<nights*>",
    name = "room-night",
    component = "bookings",
    wait = "5s"
)]
pub fn holiday<C: Connection>(conn: &mut C, room: RoomId, nights: &[NaiveDate]) -> Result<usize> {
    Err(Error::Refused)
}

/// Whether a night is blocked; while it is being booked or blocked nobody can tell.
#[advisory_lock(
    key = RoomNight { room, night },
    mode = "shared",
    wait = "never",
    on_held = Ok(None)
)]
pub fn is_blocked(conn: &mut PgConnection, room: RoomId, night: NaiveDate) -> Result<Option<bool>> {
    Err(Error::Refused)
}
