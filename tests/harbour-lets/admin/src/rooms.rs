//! Renovations: several rooms are taken off the market at once.

use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use lets_domain::RoomId;
use lets_domain::locks::RoomLock;
use lets_store::Result;
use lets_store::schema::rooms;

/// Closes a floor, or opens it again.
#[advisory_lock(keys = floor.iter().map(|room| RoomLock { room: *room }), wait = "10s")]
pub fn set_floor(conn: &mut PgConnection, floor: &[RoomId], is_let: bool) -> Result<usize> {
    let ids: Vec<i64> = floor.iter().map(|room| room.0).collect();
    let changed = diesel::update(rooms::table.filter(rooms::id.eq_any(ids)))
        .set(rooms::is_let.eq(is_let))
        .execute(conn)?;
    Ok(changed)
}
