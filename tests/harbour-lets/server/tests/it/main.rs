//! The application on a real database, with several instances at a time.
#![cfg(debug_assertions)]

mod desk;
mod lets;
mod locks;
mod mocks;
mod money;
mod office;
mod workers;
