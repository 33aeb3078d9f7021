//! The lock that a call did not get, for a query for its holders.

use crate::key::Key;
use std::fmt;

/// The lock that a call did not get, for [`monitor::holders`](crate::monitor::holders).
#[derive(Clone)]
pub struct BusyLock(Box<[Key]>);

impl BusyLock {
    pub(crate) fn new(keys: &[Key]) -> Self {
        Self(keys.into())
    }

    pub(crate) const fn keys(&self) -> &[Key] {
        &self.0
    }
}

/// Without keys: a number can be personal data.
impl fmt::Debug for BusyLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyLock").finish_non_exhaustive()
    }
}
