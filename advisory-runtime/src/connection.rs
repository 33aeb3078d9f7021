//! The connections that can hold a lock.

#[cfg(feature = "postgres")]
pub(crate) mod blocking;

#[cfg(feature = "diesel-async")]
pub use async_pg::Connection;
#[cfg(feature = "diesel-async")]
mod async_pg;
