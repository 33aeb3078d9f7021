//! The promises of both async and blocking Diesel: each file of `both/` is compiled once for each
//! driver.
//!
//! `async_pg` and `blocking_pg` define the same names, which the tests take from `super`. The names
//! of the blocking driver are `async fn` too, and block when they are polled, so a test has one
//! body.
#![allow(
    clippy::duplicate_mod,
    reason = "each file is a module of both drivers"
)]

pub(crate) mod async_pg;
pub(crate) mod blocking_pg;
