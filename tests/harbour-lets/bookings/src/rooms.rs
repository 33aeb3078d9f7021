//! Rooms and the houses that they are in.

use advisory_runtime::advisory_lock;
use diesel_async::AsyncPgConnection;
use lets_domain::locks::RoomLock;
use lets_domain::{PropertyId, RoomId};
use lets_store::{Error, Result};

/// Numbers of rooms count up within a house: one is added at a time.
#[advisory_lock(key = "room-numbers:<property: uuid>", component = "bookings")]
pub async fn add(conn: &mut AsyncPgConnection, property: PropertyId) -> Result<(RoomId, String)> {
    Err(Error::Refused)
}

/// The next free id; its caller's transaction keeps it.
#[advisory_lock(key = "room-ids", component = "bookings")]
async fn next_id(conn: &mut AsyncPgConnection) -> Result<RoomId> {
    Err(Error::Refused)
}

/// Lets a room no longer, unless somebody is still to come.
#[advisory_lock(key = RoomLock { room }, wait = "5s", isolation = "repeatable read")]
pub async fn retire(conn: &mut AsyncPgConnection, room: RoomId) -> Result<()> {
    Err(Error::Refused)
}
