//! Requests of guests and clerks: several repositories in one transaction, and each lock held to its end.

pub mod desk;
pub mod front_desk;
pub mod guests;
pub mod rebooking;
pub mod season;

pub use desk::{Confirmation, Desk};
pub use rebooking::Rebooking;
