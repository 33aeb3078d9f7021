//! What a lock that is held tells its body.

use crate::error::LockName;
use crate::key::Key;
use crate::request::{Keys, Mode};
use std::time::Duration;

/// Describes a lock that is held.
#[derive(Clone, Debug)]
pub struct Acquired {
    pub(crate) name: LockName,
    pub(crate) keys: Keys,
    /// Of a lock with permits, the key of the permit that is held.
    pub(crate) permit: Option<Key>,
    /// Of a lock with permits, all of them if the server did not say which one is held.
    pub(crate) permits: Vec<Key>,
    pub(crate) mode: Mode,
    pub(crate) waited: Duration,
}

impl Acquired {
    /// The keys that are locked at the server.
    pub(crate) fn held(&self) -> &[Key] {
        match &self.permit {
            Some(permit) => std::slice::from_ref(permit),
            None => &self.keys,
        }
    }

    /// The key; the lowest of several. For a lock with [permits](crate::Request::permits) it is the lock's own key, whichever permit is
    /// held.
    #[must_use]
    pub fn key(&self) -> Key {
        self.keys.first().copied().unwrap_or(Key::BigInt(0))
    }

    /// All keys, in the order in which they were taken.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// How long the acquisition took by this process's clock: the queue, the round trip, and the wait for other holders.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.waited
    }
}
