//! The rivals, each as its users write it.

pub(crate) mod diesel_async;
pub(crate) mod diesel_blocking;
#[cfg(feature = "distributed-lock")]
pub(crate) mod distributed_lock;
pub(crate) mod graphile_worker;
pub(crate) mod holder_columns;
pub(crate) mod open_transaction;
pub(crate) mod sqlx;
pub(crate) mod tokio_postgres;
pub(crate) mod two_tables;

/// The pending rows of a table of jobs whose statements are counted in instructions, which are the
/// same in a larger one.
pub(crate) const SMALL: u32 = 10_000;
