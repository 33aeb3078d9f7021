//! Rooms, guests, and the stays of guests in rooms.

#![expect(
    deprecated,
    unused_variables,
    reason = "the tests read the lock sites, and no body runs"
)]

pub mod blocks;
pub mod bookings;
pub mod cleanings;
pub mod desk;
pub mod emails;
pub mod guests;
pub mod key_safes;
pub mod prices;
pub mod quotes;
pub mod repository;
pub mod reviews;
pub mod rooms;
pub mod schedules;
pub mod settings;
pub mod waiting_list;
