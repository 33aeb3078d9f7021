//! The names of the arguments that each macro has, in the order in which messages list them.

use crate::attribute::Attribute;

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

impl Attribute {
    pub(crate) const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Lock => &LOCK,
            Self::Lease => &LEASE,
        }
    }
}
