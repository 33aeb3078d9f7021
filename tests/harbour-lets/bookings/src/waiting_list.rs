//! The waiting list for nights that are taken.

use advisory_runtime::{Connection, advisory_lock};
use chrono::NaiveDate;
use diesel::dsl::{max, min};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::{GuestId, RoomId};
use lets_store::schema::waiting_list;
use lets_store::{Pool, Result};
use uuid::Uuid;

/// Places count up without a gap.
#[advisory_lock(
    key = "waiting:<room: int>:<night>",
    name = "waiting-list",
    component = "bookings"
)]
pub async fn join<C: Connection>(
    conn: &mut C,
    room: RoomId,
    night: NaiveDate,
    guest: GuestId,
) -> Result<i32> {
    let of = waiting_list::table
        .filter(waiting_list::room_id.eq(room.0))
        .filter(waiting_list::night.eq(night));
    let last: Option<i32> = of.select(max(waiting_list::place)).first(conn).await?;
    let place = last.unwrap_or(0) + 1;
    diesel::insert_into(waiting_list::table)
        .values((
            waiting_list::room_id.eq(room.0),
            waiting_list::night.eq(night),
            waiting_list::place.eq(place),
            waiting_list::guest_id.eq(guest.0),
        ))
        .execute(conn)
        .await?;
    Ok(place)
}

/// Takes the first in line out of it.
#[advisory_lock(
    key = "waiting:<room: int>:<night>",
    name = "waiting-list",
    component = "bookings"
)]
pub async fn next(
    conn: &mut AsyncPgConnection,
    room: RoomId,
    night: NaiveDate,
) -> Result<Option<GuestId>> {
    let of = waiting_list::table
        .filter(waiting_list::room_id.eq(room.0))
        .filter(waiting_list::night.eq(night));
    let first: Option<i32> = of.select(min(waiting_list::place)).first(conn).await?;
    let Some(first) = first else { return Ok(None) };
    let gone = waiting_list::table.find((room.0, night, first));
    let guest = diesel::delete(gone)
        .returning(waiting_list::guest_id)
        .get_result::<Uuid>(conn)
        .await?;
    Ok(Some(GuestId(guest)))
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
pub async fn leave(
    pool: &Pool,
    room: RoomId,
    night: NaiveDate,
    guest: GuestId,
) -> Result<Option<usize>> {
    let gone = waiting_list::table
        .filter(waiting_list::room_id.eq(room.0))
        .filter(waiting_list::night.eq(night))
        .filter(waiting_list::guest_id.eq(guest.0));
    Ok(Some(diesel::delete(gone).execute(conn).await?))
}
