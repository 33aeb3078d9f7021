//! One locked call, on every kind of connection: begin, body, finish.
//!
//! `call` has the request and the state of one call; `guard` and `owned` have a connection and its
//! call. Every call goes through `begin` and `finish`. `way` has a file for each way of holding a
//! lock.

mod abandon;
mod begin;
mod body;
mod call;
mod check;
mod dropped;
mod finish;
mod guard;
mod lock_info;
mod owned;
mod poll;
mod pool_poll;
mod queue;
mod way;

pub use begin::{acquire, begin};
pub(crate) use begin::{lock, try_lock};
#[cfg(feature = "diesel-async")]
use finish::exceed;
use finish::finish;
pub(crate) use guard::ConnAccessor;
pub use guard::LockGuard;
pub use lock_info::LockInfo;
#[cfg(feature = "migrations")]
pub(crate) use owned::try_owned;
pub use owned::{OwnedLockError, OwnedLockGuard};
pub(crate) use owned::{acquire_from, acquire_owned};
pub use pool_poll::PoolPoll;
#[cfg(feature = "diesel-async")]
pub use queue::queue;
#[cfg(feature = "postgres")]
pub use queue::queue_on_thread;
