//! The two attributes, a lock and a lease, and the names of the arguments that each macro has, in the
//! order in which messages list them.

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribute {
    Lock,
    Lease,
}

impl Attribute {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lock => "`#[advisory_lock]`",
            Self::Lease => "`#[advisory_lease]`",
        }
    }

    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Lease => "lease",
        }
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Lock => Self::Lease,
            Self::Lease => Self::Lock,
        }
    }

    pub(crate) const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Lock => &LOCK,
            Self::Lease => &LEASE,
        }
    }
}

const LOCK: [&str; 28] = [
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
    "at",
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
    "allow_redundant",
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

/// Those after the pattern of `#[lock_key(…)]` and `lock_key!`.
pub(crate) const PATTERN: [&str; 9] = [
    "with",
    "name",
    "component",
    "guards",
    "allow_redundant",
    "derivation",
    "allow_ambiguous",
    "allow_overlap",
    "crate",
];
