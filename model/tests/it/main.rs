//! The check of the model, and the model's steps on a server.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod all_states;
mod server;
mod stories;
