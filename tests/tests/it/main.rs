//! The behaviour of locked functions on a real PostgreSQL, a module a behaviour.
//!
//! One binary, because each would link Diesel again. Every test has a database of its own on the process's one server.
#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test that cannot go on fails the test"
)]

mod abandoned;
mod arguments;
mod bookings;
mod cancel;
mod commit;
mod connections;
mod errors;
mod every_poll;
mod exclusion;
mod hygiene;
mod isolation;
mod keys;
mod nesting;
mod postgres;
mod round_trips;
mod search_path;
mod several;
mod waits;
