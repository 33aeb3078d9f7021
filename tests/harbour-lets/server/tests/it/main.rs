//! Does the application do what it is for, on a real database and with several of it at a time?
#![cfg(debug_assertions)]

mod desk;
mod lets;
mod locks;
mod mocks;
mod money;
mod office;
mod workers;
