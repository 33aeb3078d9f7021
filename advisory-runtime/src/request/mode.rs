//! Exclusive or shared.

/// Whether other sessions may hold the lock at the same time. `pg_locks` shows `ExclusiveLock` and `ShareLock`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No other session holds the lock.
    #[default]
    Exclusive,
    /// Other sessions may hold it, also shared.
    Shared,
}

impl Mode {
    pub(crate) fn excludes(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}
