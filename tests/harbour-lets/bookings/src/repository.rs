//! Bookings behind a trait, so that code that uses them is tested without a database.

use crate::bookings::{self, Booking};
use advisory_runtime::advisory_lock;
use async_trait::async_trait;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use lets_domain::locks::StayLock;
use lets_domain::{BookingId, BookingState, Cents, GuestId, NewStay, Nights, RoomId};
use lets_store::schema::bookings as table;
use lets_store::{Error, Pool, Refusal, Result};

#[async_trait]
pub trait BookingRepository: Send + Sync {
    async fn create(&self, stay: &NewStay) -> Result<BookingId>;
    async fn find(&self, booking: BookingId) -> Result<Booking>;
    async fn of_guest(&self, guest: GuestId) -> Result<Vec<Booking>>;
    async fn relocate(&self, booking: BookingId, room: RoomId, nights: Nights) -> Result<()>;
    async fn hand_over(&self, booking: BookingId, guest: GuestId) -> Result<()>;
    async fn discount(&self, booking: BookingId, percent: u8) -> Result<Cents>;
    async fn cancel(&self, booking: BookingId) -> Result<Cents>;
}

/// In PostgreSQL, each call on a connection of its own.
#[derive(Clone)]
pub struct PgBookings {
    pool: Pool,
}

impl PgBookings {
    pub fn new(pool: Pool) -> Self {
        Self { pool }
    }
}

#[async_trait]
impl BookingRepository for PgBookings {
    async fn create(&self, stay: &NewStay) -> Result<BookingId> {
        bookings::book(&mut self.pool.get().await?, stay).await
    }

    async fn find(&self, booking: BookingId) -> Result<Booking> {
        bookings::find(&mut self.pool.get().await?, booking).await
    }

    async fn of_guest(&self, guest: GuestId) -> Result<Vec<Booking>> {
        let found = table::table
            .filter(table::guest_id.eq(guest.0))
            .order(table::arrives)
            .select(Booking::as_select());
        Ok(found.load(&mut self.pool.get().await?).await?)
    }

    async fn relocate(&self, booking: BookingId, room: RoomId, nights: Nights) -> Result<()> {
        let mut conn = self.pool.get().await?;
        bookings::move_to(&mut conn, booking, room, nights).await
    }

    /// Somebody else comes in the guest's place.
    #[advisory_lock(
        key = StayLock { booking },
        conn = self.pool.get().await?,
        wait = "5s",
        on_held = Err(Refusal::Busy.into())
    )]
    async fn hand_over(&self, booking: BookingId, guest: GuestId) -> Result<()> {
        let found = bookings::find(conn, booking).await?;
        if found.state()? != BookingState::Booked {
            return Err(Error::Refused(Refusal::WrongState));
        }
        diesel::update(&found)
            .set(table::guest_id.eq(guest.0))
            .execute(conn)
            .await?;
        Ok(())
    }

    /// A clerk who clicks twice gives one discount: the second gets an error.
    #[advisory_lock(
        key = StayLock { booking },
        conn = self.pool.get().await?,
        wait = "never",
        on_held = Err(Refusal::Busy.into())
    )]
    async fn discount(&self, booking: BookingId, percent: u8) -> Result<Cents> {
        let found = bookings::find(conn, booking).await?;
        let off = Cents(found.price).percent(percent.min(100).into());
        let price = Cents(found.price) - off;
        diesel::update(table::table.find(booking.0))
            .set(table::price.eq(price.0))
            .execute(conn)
            .await?;
        Ok(price)
    }

    async fn cancel(&self, booking: BookingId) -> Result<Cents> {
        bookings::cancel(&mut self.pool.get().await?, booking).await
    }
}
