//! Where is a lock's key taken: among PostgreSQL's numbers, or among the texts of the lease table?
//!
//! Locks of different spaces never meet, whatever their keys. A declared lock has no space of its own: it is used in either, and a
//! site that uses it does not know its pattern. So it meets the leases as a lease would, and everything else, also another declared
//! lock, as an advisory lock. One that says another derivation than the default is shared with other programs as a number, and so
//! counts as an advisory lock alone: where it is leased nevertheless, what it meets is not found.

use crate::Derivation;

/// Names where a lock's key is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeySpace {
    /// Numbers that are given to `pg_advisory_*`: `bigint`, or `(int, int)`, as the key says.
    #[default]
    Advisory,
    /// Texts, as rows of the lease table. No derivation plays a part, and a fixed number is the text of its digits.
    Lease,
    /// Either: the key of a declared lock, which is held where it is used.
    Declared,
}

impl KeySpace {
    /// Finds the space of a site by the `scope` and `kind` of its record.
    ///
    /// What `lock_key!` gives is a number and no text any more, so it is of the advisory space.
    #[must_use]
    pub fn of(scope: &str, kind: &str) -> Self {
        match (scope, kind) {
            ("lease", _) => Self::Lease,
            ("none", "struct") => Self::Declared,
            _ => Self::Advisory,
        }
    }

    /// Gives the space of a lock that has this derivation.
    #[must_use]
    pub fn under(self, derivation: Derivation) -> Self {
        match self {
            Self::Declared if derivation != Derivation::default() => Self::Advisory,
            space => space,
        }
    }

    /// Tells whether two locks, of which one or both are leases, can meet as leases; `None` where none is, and they can meet as
    /// advisory locks.
    #[must_use]
    pub fn meets_as_lease(self, there: Self) -> Option<bool> {
        match (self, there) {
            (Self::Lease, other) | (other, Self::Lease) => Some(other != Self::Advisory),
            _ => None,
        }
    }
}
