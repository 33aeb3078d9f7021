//! How a lock is held, whatever carries it: begin, body, finish.
//!
//! `begin` and `finish` are what every call goes through; `xact`, `nested`, `hand_over` and `session` have the two ends of one way
//! of holding a lock each.

mod acquired;
mod begin;
mod body;
mod check;
mod finish;
mod guard;
mod hand_over;
mod holding;
mod nested;
mod owned;
mod pauses;
mod poll;
mod queue;
mod refusal;
mod session;
mod tries;
mod verify;
mod xact;

pub use acquired::Acquired;
pub(crate) use begin::{acquire, begin, lock, try_lock};
#[cfg(feature = "diesel-async")]
pub(crate) use finish::exceed;
pub(crate) use finish::finish;
pub use guard::Held;
pub(crate) use guard::Place;
pub(crate) use owned::acquire_from;
pub(crate) use owned::acquire_owned;
#[cfg(feature = "migrations")]
pub(crate) use owned::try_owned;
pub use owned::{OwnedLock, OwnedLockError};
#[cfg(feature = "diesel-async")]
pub(crate) use pauses::chance;
#[cfg(feature = "diesel-async")]
pub use queue::queue;
#[cfg(feature = "postgres")]
pub use queue::queue_blocking;
pub use tries::Tries;
#[cfg(feature = "diesel-async")]
pub use tries::{pause, try_at};
#[cfg(feature = "postgres")]
pub use tries::{pause_blocking, try_blocking_at};
#[cfg(feature = "migrations")]
pub(crate) use verify::check_pooler;
#[cfg(all(feature = "migrations", feature = "diesel-async"))]
pub(crate) use verify::is_direct;
pub(crate) use verify::verify;
