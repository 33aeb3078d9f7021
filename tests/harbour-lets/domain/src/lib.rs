//! The types of the business and its locks. There is no database here.

pub mod channel;
pub mod ids;
pub mod locks;

pub use channel::{Channel, Season};
pub use ids::{
    AccountId, BookingId, CleanerId, GuestId, OwnerId, PropertyId, RoomId, ScheduleId, TenantId,
};
