//! Rooms and the houses that they are in.

use advisory_runtime::{Connection, advisory_lock};
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::locks::RoomLock;
use lets_domain::{BookingState, OwnerId, PropertyId, RoomId};
use lets_store::schema::{bookings, properties, rooms};
use lets_store::{Refusal, Result};

#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = rooms)]
pub struct Room {
    pub id: i64,
    pub name: String,
    pub beds: i32,
    pub is_let: bool,
}

pub async fn add_property<C: Connection>(
    conn: &mut C,
    property: PropertyId,
    owner: OwnerId,
    name: &str,
) -> Result<()> {
    diesel::insert_into(properties::table)
        .values((
            properties::id.eq(property.0),
            properties::owner_id.eq(owner.0),
            properties::name.eq(name),
        ))
        .execute(conn)
        .await?;
    Ok(())
}

/// Numbers of rooms count up within a house: one is added at a time.
#[advisory_lock(key = "room-numbers:<property: uuid>", component = "bookings")]
pub async fn add(
    conn: &mut AsyncPgConnection,
    property: PropertyId,
    beds: i32,
) -> Result<(RoomId, String)> {
    let others: i64 = rooms::table
        .filter(rooms::property_id.eq(property.0))
        .count()
        .get_result(conn)
        .await?;
    let name = format!("{}", others + 1);
    // Ids are shared by all houses: rooms of two houses that are added at once must not get the same one.
    let id = next_id(conn).await?;
    diesel::insert_into(rooms::table)
        .values((
            rooms::id.eq(id.0),
            rooms::property_id.eq(property.0),
            rooms::name.eq(&name),
            rooms::beds.eq(beds),
        ))
        .execute(conn)
        .await?;
    Ok((id, name))
}

/// The next free id; its caller's transaction keeps it.
#[advisory_lock(key = "room-ids", component = "bookings")]
async fn next_id(conn: &mut AsyncPgConnection) -> Result<RoomId> {
    let last: Option<i64> = rooms::table
        .select(diesel::dsl::max(rooms::id))
        .first(conn)
        .await?;
    Ok(RoomId(last.unwrap_or(0) + 1))
}

#[advisory_lock(key = RoomLock { room }, wait = "5s")]
pub async fn rename<C: Connection>(conn: &mut C, room: RoomId, name: &str) -> Result<()> {
    let changed = diesel::update(rooms::table.find(room.0))
        .set(rooms::name.eq(name))
        .execute(conn)
        .await?;
    if changed == 0 {
        return Err(Refusal::NotFound.into());
    }
    Ok(())
}

/// Lets a room no longer, unless somebody is still to come.
#[advisory_lock(key = RoomLock { room }, wait = "5s", isolation = "repeatable read")]
pub async fn retire(conn: &mut AsyncPgConnection, room: RoomId) -> Result<()> {
    let to_come: i64 = bookings::table
        .filter(bookings::room_id.eq(room.0))
        .filter(bookings::state.eq(BookingState::Booked.as_str()))
        .count()
        .get_result(conn)
        .await?;
    if to_come > 0 {
        return Err(Refusal::WrongState.into());
    }
    diesel::update(rooms::table.find(room.0))
        .set(rooms::is_let.eq(false))
        .execute(conn)
        .await?;
    Ok(())
}

/// Swaps two rooms' beds; both are locked, whichever is named first.
#[advisory_lock(keys = [RoomLock { room: one }, RoomLock { room: other }], wait = "5s")]
pub async fn swap_beds(conn: &mut AsyncPgConnection, one: RoomId, other: RoomId) -> Result<()> {
    let beds = async |conn: &mut AsyncPgConnection, room: RoomId| {
        let beds = rooms::table.find(room.0).select(rooms::beds);
        beds.first::<i32>(conn).await
    };
    let (here, there) = (beds(conn, one).await?, beds(conn, other).await?);
    for (room, beds) in [(one, there), (other, here)] {
        diesel::update(rooms::table.find(room.0))
            .set(rooms::beds.eq(beds))
            .execute(conn)
            .await?;
    }
    Ok(())
}

/// The rooms of a house, whatever is done to them at the moment.
pub async fn of_property<C: Connection>(conn: &mut C, property: PropertyId) -> Result<Vec<Room>> {
    let of = rooms::table
        .filter(rooms::property_id.eq(property.0))
        .order(rooms::id)
        .select(Room::as_select());
    Ok(of.load(conn).await?)
}
