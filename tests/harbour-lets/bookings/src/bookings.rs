//! Stays: booked, moved, cancelled. Each function runs in its caller's transaction or in its own.

use advisory_runtime::{Connection, advisory_lock};
use chrono::NaiveDate;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::locks::StayLock;
use lets_domain::{BookingId, BookingState, Cents, GuestId, NewStay, Nights, RoomId};
use lets_store::schema::{blocks, bookings, rooms};
use lets_store::{Refusal, Result};
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable, Identifiable)]
#[diesel(table_name = bookings)]
pub struct Booking {
    pub id: Uuid,
    pub room_id: i64,
    pub guest_id: Uuid,
    pub arrives: NaiveDate,
    pub departs: NaiveDate,
    pub state: String,
    pub price: i64,
    pub paid: i64,
}

impl Booking {
    pub fn room(&self) -> RoomId {
        RoomId(self.room_id)
    }

    pub fn guest(&self) -> GuestId {
        GuestId(self.guest_id)
    }

    pub fn nights(&self) -> Nights {
        Nights {
            arrives: self.arrives,
            departs: self.departs,
        }
    }

    pub fn due(&self) -> Cents {
        Cents(self.price - self.paid)
    }

    pub fn state(&self) -> Result<BookingState> {
        Ok(BookingState::parse(&self.state).ok_or(Refusal::Invalid)?)
    }
}

pub async fn find<C: Connection>(conn: &mut C, booking: BookingId) -> Result<Booking> {
    let found = bookings::table.find(booking.0).select(Booking::as_select());
    Ok(found.first(conn).await?)
}

/// Books the nights if all of them are free.
///
/// One lock a night, so that stays in one room that do not touch each other do not wait for each other.
#[advisory_lock(
    key = "night:<stay.room: int>:<nights*: date>",
    name = "room-night",
    with(nights = stay.nights.each().collect::<Vec<NaiveDate>>()),
    wait = "5s",
    component = "bookings"
)]
pub async fn book<C: Connection>(conn: &mut C, stay: &NewStay) -> Result<BookingId> {
    let room = rooms::table.find(stay.room.0).select(rooms::is_let);
    if !room.first::<bool>(conn).await? {
        return Err(Refusal::WrongState.into());
    }
    if !is_free(conn, stay.room, stay.nights, None).await? {
        return Err(Refusal::Taken.into());
    }
    let id = Uuid::new_v4();
    diesel::insert_into(bookings::table)
        .values((
            bookings::id.eq(id),
            bookings::tenant_id.eq(stay.tenant.0),
            bookings::room_id.eq(stay.room.0),
            bookings::guest_id.eq(stay.guest.0),
            bookings::arrives.eq(stay.nights.arrives),
            bookings::departs.eq(stay.nights.departs),
            bookings::state.eq(BookingState::Booked.as_str()),
            bookings::price.eq(stay.price.0),
        ))
        .execute(conn)
        .await?;
    Ok(BookingId(id))
}

/// A stay keeps its state while it is being moved; the nights that it moves to are locked inside.
#[advisory_lock(key = StayLock { booking }, wait = "5s")]
pub async fn move_to(
    conn: &mut AsyncPgConnection,
    booking: BookingId,
    room: RoomId,
    nights: Nights,
) -> Result<()> {
    let before = find(conn, booking).await?;
    if before.state()? != BookingState::Booked {
        return Err(Refusal::WrongState.into());
    }
    let days: Vec<_> = nights.each().collect();
    occupy(conn, booking, room, &days, nights).await
}

/// The second half of a move: the nights that it moves to.
#[advisory_lock(
    key = "night:<room: int>:<days*: date>",
    name = "room-night",
    wait = "5s",
    component = "bookings"
)]
async fn occupy(
    conn: &mut AsyncPgConnection,
    booking: BookingId,
    room: RoomId,
    days: &[NaiveDate],
    nights: Nights,
) -> Result<()> {
    if !is_free(conn, room, nights, Some(booking)).await? {
        return Err(Refusal::Taken.into());
    }
    diesel::update(bookings::table.find(booking.0))
        .set((
            bookings::room_id.eq(room.0),
            bookings::arrives.eq(nights.arrives),
            bookings::departs.eq(nights.departs),
        ))
        .execute(conn)
        .await?;
    Ok(())
}

/// Cancelled once, even if two clerks click; gives back what was paid.
#[advisory_lock(key = StayLock { booking }, wait = "5s")]
pub async fn cancel<C: Connection>(conn: &mut C, booking: BookingId) -> Result<Cents> {
    let found = find(conn, booking).await?;
    enter(conn, &found, BookingState::Cancelled).await?;
    diesel::update(&found)
        .set(bookings::paid.eq(0))
        .execute(conn)
        .await?;
    Ok(Cents(found.paid))
}

/// A stay arrives or departs.
#[advisory_lock(key = StayLock { booking }, wait = "5s")]
pub async fn pass<C: Connection>(
    conn: &mut C,
    booking: BookingId,
    next: BookingState,
) -> Result<Booking> {
    let found = find(conn, booking).await?;
    enter(conn, &found, next).await?;
    Ok(found)
}

/// What was paid for a stay, one payment at a time.
#[advisory_lock(key = StayLock { booking }, wait = "5s")]
pub async fn pay(conn: &mut AsyncPgConnection, booking: BookingId, amount: Cents) -> Result<Cents> {
    let found = find(conn, booking).await?;
    if amount > found.due() {
        return Err(Refusal::Invalid.into());
    }
    let paid = Cents(found.paid) + amount;
    diesel::update(&found)
        .set(bookings::paid.eq(paid.0))
        .execute(conn)
        .await?;
    Ok(found.due() - amount)
}

async fn enter<C: Connection>(conn: &mut C, booking: &Booking, next: BookingState) -> Result<()> {
    if !booking.state()?.may_become(next) {
        return Err(Refusal::WrongState.into());
    }
    diesel::update(booking)
        .set(bookings::state.eq(next.as_str()))
        .execute(conn)
        .await?;
    Ok(())
}

async fn is_free<C: Connection>(
    conn: &mut C,
    room: RoomId,
    nights: Nights,
    without: Option<BookingId>,
) -> Result<bool> {
    let stays = bookings::table
        .filter(bookings::room_id.eq(room.0))
        .filter(bookings::state.ne(BookingState::Cancelled.as_str()))
        .filter(bookings::arrives.lt(nights.departs))
        .filter(bookings::departs.gt(nights.arrives))
        .filter(bookings::id.ne(without.map_or(Uuid::nil(), |booking| booking.0)));
    let blocked = blocks::table
        .filter(blocks::room_id.eq(room.0))
        .filter(blocks::night.ge(nights.arrives))
        .filter(blocks::night.lt(nights.departs));
    let stays: i64 = stays.count().get_result(conn).await?;
    let blocked: i64 = blocked.count().get_result(conn).await?;
    Ok(stays + blocked == 0)
}
