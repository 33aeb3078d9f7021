//! The description of a held lock, for its body.

use crate::error::{lock_name, never};
use crate::holding::OfDeclaredLock;
use crate::key::Key;
use crate::request::{Keys, Mode};
#[cfg(feature = "diesel-async")]
use diesel_async::AsyncPgConnection;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Describes a held lock.
///
/// `LockInfo` describes a lock on a connection of diesel-async,
/// [`blocking::LockInfo`](crate::blocking::LockInfo) one on a blocking connection.
///
/// # Examples
///
/// ```
/// use advisory_runtime::advisory_lock;
/// use diesel::QueryResult;
/// use diesel_async::AsyncPgConnection;
///
/// #[advisory_lock(key = "room:<room>", handle = lock)]
/// async fn book(_conn: &mut AsyncPgConnection, room: i64) -> QueryResult<()> {
///     eprintln!("waited {:?} for {}", lock.waited(), lock.key());
///     Ok(())
/// }
/// # fn main() {}
/// ```
pub struct LockInfo<
    #[cfg(feature = "diesel-async")] D = AsyncPgConnection,
    #[cfg(not(feature = "diesel-async"))] D,
> {
    pub(crate) pattern: &'static str,
    pub(crate) keys: Keys,
    /// The key of the permit that is held, for a lock with permits.
    pub(crate) permit: Option<Key>,
    /// All permits of a lock with permits, if the server did not say which one is held.
    pub(crate) permits: Vec<Key>,
    pub(crate) mode: Mode,
    /// The rows that choose the node of a cluster, if it is held there.
    pub(crate) at: Option<Box<str>>,
    pub(crate) waited: Duration,
    pub(crate) driver: PhantomData<fn() -> D>,
}

impl<D> LockInfo<D> {
    pub(crate) fn name(&self) -> Cow<'static, str> {
        lock_name(self.pattern, &self.keys)
    }

    /// The keys that are locked at the server.
    pub(crate) fn held(&self) -> &[Key] {
        let permit = self.permit.as_ref().map(std::slice::from_ref);
        permit.unwrap_or(&self.keys)
    }

    /// Returns the key, or the lowest of several. For a lock with
    /// [permits](crate::Request::permits), it is the lock's own key and not the permit's.
    #[must_use]
    pub fn key(&self) -> Key {
        self.keys.first().copied().unwrap_or(Key::BigInt(0))
    }

    /// Returns all keys, in the order in which they were taken.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Returns the duration of the acquisition by this process's clock: the queue, the round trip,
    /// and the wait for other holders.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }

    /// Only for its compile error: a body under a declared lock gets a `Handle` instead.
    #[doc(hidden)]
    #[must_use]
    pub fn holding<H>(&self) -> H
    where
        for<'h> &'h Self: OfDeclaredLock,
    {
        never()
    }
}

impl<D> Clone for LockInfo<D> {
    fn clone(&self) -> Self {
        Self {
            pattern: self.pattern,
            keys: self.keys.clone(),
            permit: self.permit,
            permits: self.permits.clone(),
            mode: self.mode,
            at: self.at.clone(),
            waited: self.waited,
            driver: PhantomData,
        }
    }
}

impl<D> fmt::Debug for LockInfo<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockInfo")
            .field("lock", &self.name())
            .field("keys", &self.keys)
            .field("permit", &self.permit)
            .field("mode", &self.mode)
            .field("waited", &self.waited)
            .finish_non_exhaustive()
    }
}
