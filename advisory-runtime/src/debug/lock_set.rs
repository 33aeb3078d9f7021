//! The locks of one request for the debug checks: keys with their patterns, and the place of the
//! request.

use crate::key::known;
use crate::request::CallSite;
use crate::{Key, Mode, Request};
use advisory_pattern::parse;
use std::borrow::Cow;

#[derive(Debug)]
pub(crate) struct LockSet {
    /// Grows with each request; marks the call's transaction on the server.
    pub(crate) id: u64,
    pub(crate) locks: Vec<(Slot, Lock)>,
    pub(crate) mode: Mode,
    pub(crate) place: CallSite,
    /// The exclusive locks of patterns without placeholders, each of which is certainly one lock:
    /// pattern and number.
    pub(crate) gates: Vec<String>,
    /// True if the call holds the turns of these keys, in the process's queue, to its end.
    pub(crate) has_turn: bool,
}

/// The resource that a lock protects at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Key(Key),
    /// The row of a lease, by its key's hash.
    #[cfg_attr(
        not(feature = "diesel-async"),
        expect(dead_code, reason = "there are no leases")
    )]
    Lease([u8; 32]),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lock {
    pub(crate) text: Cow<'static, str>,
    pub(crate) is_lease: bool,
}

impl LockSet {
    pub(crate) fn new(id: u64, request: &Request) -> Self {
        // If the pattern of each key is unknown, the request counts as one lock.
        let pattern_of = |key| request.origin.pattern_of(key).unwrap_or(request.pattern);
        let name = |key: Key| Lock {
            text: match pattern_of(key) {
                "" => known::pattern_of(key).map_or_else(|| key.to_string().into(), Into::into),
                pattern => pattern.into(),
            },
            is_lease: false,
        };
        let keys = request.keys.iter();
        let is_one = |key: &&Key| {
            let pattern = pattern_of(**key);
            !pattern.is_empty()
                && parse(pattern).is_ok_and(|read| read.placeholders().next().is_none())
        };
        // Each permit of a lock is a lock of its own.
        let is_gate = request.mode == Mode::Exclusive && request.permits.is_empty();
        let gates = keys.clone().filter(|key| is_gate && is_one(key));
        let gates = gates.map(|key| format!("{} ({key})", name(*key).text));
        Self {
            gates: gates.collect(),
            has_turn: request.origin.has_turn(),
            id,
            locks: keys.map(|key| (Slot::Key(*key), name(*key))).collect(),
            mode: request.mode,
            place: request.origin.place(),
        }
    }

    #[cfg(feature = "diesel-async")]
    pub(crate) fn lease(key_hash: [u8; 32], text: Cow<'static, str>, place: CallSite) -> Self {
        let is_lease = true;
        Self {
            id: 0,
            locks: vec![(Slot::Lease(key_hash), Lock { text, is_lease })],
            mode: Mode::Exclusive,
            place,
            // A lease can expire under its holder.
            gates: Vec::new(),
            has_turn: false,
        }
    }

    /// The keys with their names; with a permit, its key instead.
    pub(crate) fn keys_and_names(
        &self,
        permit: Option<Key>,
    ) -> impl Iterator<Item = (Key, Cow<'static, str>)> {
        self.locks
            .iter()
            .filter_map(move |(slot, lock)| match slot {
                Slot::Key(key) => Some((permit.unwrap_or(*key), lock.text.clone())),
                Slot::Lease(_) => None,
            })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        self.keys_and_names(None).map(|(key, _)| key)
    }

    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.locks.iter().any(|(own, _)| *own == slot)
    }
}
