//! The locks that several crates use. A lock that only one function uses is written at that function.
//!
//! A call that takes several of them takes them in the order of this file.

use crate::{
    AccountId, BookingId, Channel, CleanerId, GuestId, OwnerId, PropertyId, RoomId, Season,
};
use advisory_runtime::LockKey;
use chrono::NaiveDate;

/// One stay's state and balance.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key("stay:<booking: uuid>", component = "bookings")]
pub struct StayLock {
    pub booking: BookingId,
}

/// What is let in a room on a night: bookings, moves, cancellations, blocks.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key(
    "night:<room: int>:<night>",
    name = "room-night",
    component = "bookings",
    guards = "blocks"
)]
pub struct RoomNight {
    pub room: RoomId,
    pub night: NaiveDate,
}

/// A room's own data: its name, its beds, whether it is let at all.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key("room:<room: int>", component = "bookings")]
pub struct RoomLock {
    pub room: RoomId,
}

/// What is known of a guest; merges take two.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key("guest:<guest: uuid>", component = "guests")]
pub struct GuestLock {
    pub guest: GuestId,
}

/// An address that two guests must not both have.
#[derive(Clone, Debug, LockKey)]
#[lock_key("email:<address|trim|lower>", component = "guests")]
pub struct EmailLock {
    pub address: String,
}

/// The prices of a house in a season: read by many, written by one.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key("prices:<property: uuid>:<season: text>", component = "prices")]
pub struct PriceList {
    pub property: PropertyId,
    pub season: Season,
}

/// The codes of a house's key safes.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key(
    "key-safe:<property: uuid>:<slot: int>",
    name = "key-safe",
    component = "housekeeping"
)]
pub struct KeySafe {
    pub property: PropertyId,
    pub slot: i32,
}

/// Who cleans what in a week.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key("rota:<cleaner: int>:<week: uint>", component = "housekeeping")]
pub struct Rota {
    pub cleaner: CleanerId,
    pub week: u32,
}

/// What goes into and out of an account.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key("account:<id: int>", name = "account", component = "ledger")]
pub struct AccountLock {
    pub id: AccountId,
}

/// A code that pays once.
#[derive(Clone, Debug, LockKey)]
#[lock_key("voucher:<code|trim|lower>", component = "vouchers")]
pub struct VoucherLock {
    pub code: String,
}

/// A guest's points.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key("loyalty:<guest: uuid>", component = "loyalty")]
pub struct LoyaltyLock {
    pub guest: GuestId,
}

/// What an owner is paid for a month.
#[derive(Clone, Debug, LockKey)]
#[lock_key("statement:<owner: int>:<month>", component = "owners")]
pub struct StatementLock {
    pub owner: OwnerId,
    pub month: String,
}

/// A house's calendar at another firm.
#[derive(Clone, Copy, Debug, LockKey)]
#[lock_key("feed:<channel: text>:<property: uuid>", component = "channels")]
pub struct FeedLock {
    pub channel: Channel,
    pub property: PropertyId,
}
