//! Offers that a guest takes or leaves.

use crate::bookings;
use advisory_runtime::advisory_lock;
use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use lets_domain::{BookingId, Cents, GuestId, NewStay, Nights, RoomId, TenantId};
use lets_store::schema::quotes;
use lets_store::{Refusal, Result};
use uuid::Uuid;

#[derive(Clone, Debug, Queryable, Selectable)]
#[diesel(table_name = quotes)]
struct Quote {
    room_id: i64,
    arrives: chrono::NaiveDate,
    departs: chrono::NaiveDate,
    price: i64,
    taken_by: Option<Uuid>,
}

pub async fn offer(
    conn: &mut AsyncPgConnection,
    room: RoomId,
    nights: Nights,
    price: Cents,
) -> Result<Uuid> {
    let id = Uuid::new_v4();
    diesel::insert_into(quotes::table)
        .values((
            quotes::id.eq(id),
            quotes::room_id.eq(room.0),
            quotes::arrives.eq(nights.arrives),
            quotes::departs.eq(nights.departs),
            quotes::price.eq(price.0),
        ))
        .execute(conn)
        .await?;
    Ok(id)
}

/// A quote is taken once; the booking is made in the same transaction.
#[advisory_lock(key = "quote:<quote>", wait = "5s", component = "bookings")]
pub async fn take(
    conn: &mut AsyncPgConnection,
    quote: Uuid,
    tenant: TenantId,
    guest: GuestId,
) -> Result<BookingId> {
    let found = quotes::table.find(quote).select(Quote::as_select());
    let found: Quote = found.first(conn).await?;
    if found.taken_by.is_some() {
        return Err(Refusal::AlreadyDone.into());
    }
    let stay = NewStay {
        tenant,
        room: RoomId(found.room_id),
        guest,
        nights: Nights::new(found.arrives, found.departs).ok_or(Refusal::Invalid)?,
        price: Cents(found.price),
    };
    let booking = bookings::book(conn, &stay).await?;
    diesel::update(quotes::table.find(quote))
        .set(quotes::taken_by.eq(guest.0))
        .execute(conn)
        .await?;
    Ok(booking)
}
