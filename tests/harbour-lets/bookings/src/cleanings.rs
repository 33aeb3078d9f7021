//! The cleaners of each room and day.

use advisory_runtime::advisory_lock;
use chrono::{Datelike, NaiveDate};
use diesel_async::AsyncPgConnection;
use lets_domain::locks::Rota;
use lets_domain::{CleanerId, RoomId};
use lets_store::{Error, Result};

/// Assigns a room, unless the cleaner's week is full.
#[advisory_lock(key = Rota { cleaner, week: day.iso_week().week() }, wait = "5s")]
pub async fn assign(
    conn: &mut AsyncPgConnection,
    cleaner: CleanerId,
    day: NaiveDate,
) -> Result<()> {
    Err(Error::Refused)
}

/// Done is done once; a room is handed on only when it is.
#[advisory_lock(
    key = "cleaning:<room: int>:<iso>",
    with(iso = day.format("%G-%V-%u").to_string()),
    component = "housekeeping"
)]
pub async fn done(conn: &mut AsyncPgConnection, room: RoomId, day: NaiveDate) -> Result<bool> {
    Err(Error::Refused)
}
