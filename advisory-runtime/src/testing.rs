//! Tests of locked functions: who holds a lock, who waits for it, and two calls in a chosen
//! interleaving.
//!
//! Enable the feature `testing` in `[dev-dependencies]`. An [`Observer`] reads `pg_locks` on a
//! connection of its own and waits for states, not for times. Give each test its own keys or its
//! own database: the observer sees every session that uses a key.
//!
//! A function under a lease can run without a database, on
//! [`Leases::in_memory`](crate::lease::Leases::in_memory). The guide's page on
//! [testing](crate::guide::testing) has the rest: test transactions, mocks, and the assertions that
//! every program should have.
//!
//! ```no_run
//! use advisory_runtime::testing::Observer;
//! use diesel_async::AsyncPgConnection;
//!
//! async fn nobody_holds_the_lock(conn: AsyncPgConnection) {
//!     assert!(!Observer::new(conn).is_held(42).await);
//! }
//! ```

mod calls;
mod errors;
mod observer;
mod pool;

pub use errors::{claim_errors, lease_errors, lock_errors};
pub use observer::Observer;
#[cfg(feature = "r2d2")]
pub use pool::assert_r2d2_replaces_broken;
pub use pool::assert_replaces_broken;

use crate::{DeclaredLock, Holding};
use std::panic::Location;

/// Makes a witness without a lock, to test a function that takes a [`Holding`] without a database.
///
/// It proves nothing: use it in unit tests only. For a `Holding<'_, Shared<…>>` write
/// `holding(&key).shared()`.
///
/// # Examples
///
/// ```
/// use advisory_runtime::{Holding, LockKey, testing};
///
/// #[derive(LockKey)]
/// #[lock_key("slot:<room>")]
/// struct SlotLock {
///     room: i64,
/// }
///
/// fn label(slot: Holding<'_, SlotLock>) -> String {
///     format!("room {}", slot.key().room)
/// }
///
/// assert_eq!(label(testing::holding(&SlotLock { room: 7 })), "room 7");
/// ```
#[must_use]
pub fn holding<K: DeclaredLock>(key: &K) -> Holding<'_, K::Lock> {
    Holding::new(key.lock())
}

/// Names the line of the test: the panic of a future has the line where the future is polled.
#[expect(clippy::panic, reason = "an assertion of a user's test")]
fn fail(at: &Location<'_>, what: &str) -> ! {
    panic!("{at}: {what}")
}
