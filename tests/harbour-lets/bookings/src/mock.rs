//! Bookings in memory, for tests of code that uses them. No lock: one mutex is enough here.

use crate::bookings::Booking;
use crate::repository::BookingRepository;
use async_trait::async_trait;
use lets_domain::{BookingId, BookingState, Cents, GuestId, NewStay, Nights, RoomId};
use lets_store::{Refusal, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use uuid::Uuid;

#[derive(Debug, Default)]
pub struct MockBookings {
    rows: Mutex<Vec<Booking>>,
}

impl MockBookings {
    fn rows(&self) -> MutexGuard<'_, Vec<Booking>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(
        &self,
        booking: BookingId,
        change: impl FnOnce(&mut Booking) -> Result<T>,
    ) -> Result<T> {
        let mut rows = self.rows();
        let row = rows.iter_mut().find(|row| row.id == booking.0);
        change(row.ok_or(Refusal::NotFound)?)
    }

    fn is_free(&self, room: RoomId, nights: Nights) -> bool {
        let rows = self.rows();
        !rows.iter().any(|row| {
            row.room() == room
                && row.nights().overlaps(nights)
                && row.state != BookingState::Cancelled.as_str()
        })
    }
}

#[async_trait]
impl BookingRepository for MockBookings {
    async fn create(&self, stay: &NewStay) -> Result<BookingId> {
        if !self.is_free(stay.room, stay.nights) {
            return Err(Refusal::Taken.into());
        }
        let id = Uuid::new_v4();
        self.rows().push(Booking {
            id,
            room_id: stay.room.0,
            guest_id: stay.guest.0,
            arrives: stay.nights.arrives,
            departs: stay.nights.departs,
            state: BookingState::Booked.as_str().to_owned(),
            price: stay.price.0,
            paid: 0,
        });
        Ok(BookingId(id))
    }

    async fn find(&self, booking: BookingId) -> Result<Booking> {
        self.change(booking, |row| Ok(row.clone()))
    }

    async fn of_guest(&self, guest: GuestId) -> Result<Vec<Booking>> {
        let rows = self.rows();
        let of_guest = rows.iter().filter(|row| row.guest() == guest);
        Ok(of_guest.cloned().collect())
    }

    async fn relocate(&self, booking: BookingId, room: RoomId, nights: Nights) -> Result<()> {
        if !self.is_free(room, nights) {
            return Err(Refusal::Taken.into());
        }
        self.change(booking, |row| {
            (row.room_id, row.arrives, row.departs) = (room.0, nights.arrives, nights.departs);
            Ok(())
        })
    }

    async fn hand_over(&self, booking: BookingId, guest: GuestId) -> Result<()> {
        self.change(booking, |row| {
            row.guest_id = guest.0;
            Ok(())
        })
    }

    async fn discount(&self, booking: BookingId, percent: u8) -> Result<Cents> {
        self.change(booking, |row| {
            row.price -= Cents(row.price).percent(percent.into()).0;
            Ok(Cents(row.price))
        })
    }

    async fn cancel(&self, booking: BookingId) -> Result<Cents> {
        self.change(booking, |row| {
            row.state = BookingState::Cancelled.as_str().to_owned();
            Ok(Cents(std::mem::take(&mut row.paid)))
        })
    }
}
