//! The lock that a call did not get, for a query for its holders.

use crate::key::Key;
use std::fmt;

/// The lock that a call did not get, as far as [`Error::holders`](crate::Error::holders) needs it. The default has none.
#[derive(Clone, Default)]
pub struct BusyLock(Option<Box<Busy>>);

/// The lock.
#[derive(Clone)]
#[cfg_attr(
    not(feature = "diesel-async"),
    expect(dead_code, reason = "blocking Diesel has no leases")
)]
pub(crate) enum Busy {
    Keys(Vec<Key>),
    /// The table, as `schema.table`, and the SHA-256 of the key's text.
    Lease(String, [u8; 32]),
}

impl BusyLock {
    pub(crate) fn keys(keys: &[Key]) -> Self {
        Self(Some(Box::new(Busy::Keys(keys.to_vec()))))
    }

    #[cfg(feature = "diesel-async")]
    pub(crate) fn lease(table: String, key_hash: [u8; 32]) -> Self {
        Self(Some(Box::new(Busy::Lease(table, key_hash))))
    }

    pub(crate) fn get(&self) -> Option<&Busy> {
        self.0.as_deref()
    }
}

/// Without keys: a number can be personal data.
impl fmt::Debug for BusyLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyLock").finish_non_exhaustive()
    }
}
