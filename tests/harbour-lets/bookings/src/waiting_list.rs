//! The waiting list for nights that are taken.

use advisory_runtime::{Connection, advisory_lock};
use chrono::NaiveDate;
use lets_domain::RoomId;
use lets_store::{Error, Pool, Result};

/// Places count up without a gap.
#[advisory_lock(
    key = "waiting:<room: int>:<night>",
    name = "waiting-list",
    component = "bookings"
)]
pub async fn join<C: Connection>(conn: &mut C, room: RoomId, night: NaiveDate) -> Result<i32> {
    Err(Error::Refused)
}

/// Who gives up is let go only where nobody is being called at the moment.
#[advisory_lock(
    key = "waiting:<room: int>:<night>",
    name = "waiting-list",
    component = "bookings",
    conn = pool.get().await?,
    wait = "never",
    on_held = Ok(None)
)]
pub async fn leave(pool: &Pool, room: RoomId, night: NaiveDate) -> Result<Option<usize>> {
    Err(Error::Refused)
}
