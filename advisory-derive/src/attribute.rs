//! The two attributes: a lock and a lease, each with its arguments.

/// Which of the two a function has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribute {
    Lock,
    Lease,
}

impl Attribute {
    /// `#[advisory_lock]`
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lock => "`#[advisory_lock]`",
            Self::Lease => "`#[advisory_lease]`",
        }
    }

    /// What a call acquires.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Lease => "lease",
        }
    }

    pub(crate) const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Lock => &LOCK,
            Self::Lease => &LEASE,
        }
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Lock => Self::Lease,
            Self::Lease => Self::Lock,
        }
    }
}

const LOCK: [&str; 26] = [
    "key",
    "keys",
    "with",
    "scope",
    "mode",
    "wait",
    "poll",
    "poll_max",
    "permits",
    "on_held",
    "err",
    "max_hold",
    "isolation",
    "nested",
    "queue",
    "handle",
    "pool",
    "conn",
    "derivation",
    "max_keys",
    "allow_ambiguous",
    "name",
    "component",
    "guards",
    "allow_overlap",
    "crate",
];

const LEASE: [&str; 15] = [
    "key",
    "with",
    "name",
    "pool",
    "ttl",
    "renew",
    "keep",
    "wait",
    "on_held",
    "on_done",
    "handle",
    "err",
    "component",
    "allow_overlap",
    "crate",
];
