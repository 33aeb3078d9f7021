//! Rooms, guests, and the stays of guests in rooms.

pub mod blocks;
pub mod bookings;
pub mod cleanings;
pub mod emails;
pub mod guests;
pub mod key_safes;
pub mod mock;
pub mod prices;
pub mod quotes;
pub mod repository;
pub mod reviews;
pub mod rooms;
pub mod schedules;
pub mod settings;
pub mod waiting_list;

pub use mock::MockBookings;
pub use repository::{BookingRepository, PgBookings};
