#![allow(clippy::unwrap_used, clippy::large_futures, dead_code, missing_docs)]
#[path = "it/bookings.rs"]
mod bookings;
#[path = "it/errors.rs"]
mod errors;
