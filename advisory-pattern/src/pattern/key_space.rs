//! The key space of a lock: PostgreSQL's numbers, or the texts of the lease table.
//!
//! Locks of different spaces never exclude each other, whatever their keys. A declared lock can be
//! used in either space, by sites that do not know its pattern. It is compared with leases as a
//! lease, and with all others, including declared locks, as an advisory lock. A declared lock with
//! another derivation than the default shares its number with other programs, and counts as an
//! advisory lock only: if it is leased nevertheless, its collisions with leases are not found.

use crate::derivation::Derivation;

/// The kind of keys among which a lock's key is unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeySpace {
    /// Numbers that are given to `pg_advisory_*`: `bigint`, or `(int, int)`, as the key says.
    #[default]
    Advisory,
    /// Texts, as rows of the lease table. The derivation does not matter, and a fixed number is the
    /// text of its digits.
    Lease,
    /// Either: the key of a declared lock, which each site can use for a lock or for a lease.
    Declared,
}

impl KeySpace {
    /// Finds the space of a site by the `scope` and `kind` of its record; `None` for a scope that
    /// this version does not know.
    ///
    /// `lock_key!` gives only a number, so its keys are in the advisory space. An inventory in JSON
    /// can leave the scope out.
    pub(crate) fn of(scope: &str, kind: &str) -> Option<Self> {
        match (scope, kind) {
            ("lease", _) => Some(Self::Lease),
            ("none", "struct") => Some(Self::Declared),
            ("xact" | "session" | "none" | "", _) => Some(Self::Advisory),
            _ => None,
        }
    }

    /// Returns the space of a lock that has this derivation.
    #[must_use]
    pub fn under(self, derivation: Derivation) -> Self {
        match self {
            Self::Declared if derivation != Derivation::default() => Self::Advisory,
            space => space,
        }
    }

    /// Returns how the keys of two locks are compared.
    #[must_use]
    pub fn comparison(self, there: Self) -> Comparison {
        match (self, there) {
            (Self::Lease, Self::Advisory) | (Self::Advisory, Self::Lease) => Comparison::Disjoint,
            (Self::Lease, _) | (_, Self::Lease) => Comparison::Texts,
            _ => Comparison::Numbers,
        }
    }
}

/// How the keys of two locks are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// As the numbers of advisory locks.
    Numbers,
    /// As the texts of leases.
    Texts,
    /// Not compared: a lease and an advisory lock never exclude each other.
    Disjoint,
}
