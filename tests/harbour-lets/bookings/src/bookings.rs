//! Stays: booked, moved, cancelled. Each function runs in its caller's transaction or in its own.

use advisory_runtime::{Connection, advisory_lock};
use chrono::NaiveDate;
use diesel_async::AsyncPgConnection;
use lets_domain::locks::StayLock;
use lets_domain::{BookingId, RoomId};
use lets_store::{Error, Result};

/// What a guest asks for.
pub struct NewStay {
    pub room: RoomId,
    pub nights: Vec<NaiveDate>,
}

/// Books the nights if all of them are free.
///
/// One lock a night, so that stays in one room that do not touch each other do not wait for each other.
#[advisory_lock(
    key = "night:<stay.room: int>:<nights*: date>",
    name = "room-night",
    with(nights = stay.nights.clone()),
    wait = "5s",
    component = "bookings"
)]
pub async fn book<C: Connection>(conn: &mut C, stay: &NewStay) -> Result<BookingId> {
    Err(Error::Refused)
}

/// The second half of a move: the nights that it moves to.
#[advisory_lock(
    key = "night:<room: int>:<days*: date>",
    name = "room-night",
    wait = "5s",
    component = "bookings"
)]
async fn occupy(conn: &mut AsyncPgConnection, room: RoomId, days: &[NaiveDate]) -> Result<()> {
    Err(Error::Refused)
}

/// Cancelled once, even if two clerks click; gives back what was paid.
#[advisory_lock(key = StayLock { booking }, wait = "5s")]
pub async fn cancel<C: Connection>(conn: &mut C, booking: BookingId) -> Result<i64> {
    Err(Error::Refused)
}
