//! The types of the business and its locks. There is no database here.

pub mod booking;
pub mod channel;
pub mod ids;
pub mod locks;
pub mod money;
pub mod nights;

pub use booking::{BookingState, NewStay};
pub use channel::{Channel, Season};
pub use ids::{
    AccountId, BookingId, CleanerId, GuestId, OwnerId, PropertyId, RoomId, ScheduleId, TenantId,
};
pub use money::Cents;
pub use nights::Nights;
