//! Records of locks that programs of the tests contain.

use crate::programs::site;
use advisory_pattern::Record;
use advisory_pattern::order::{Edge, End};

pub(crate) fn end(lock: &str, place: &str) -> End {
    End {
        lock: lock.to_owned(),
        is_lease: lock.starts_with("payout"),
        is_shared: false,
        place: place.to_owned(),
    }
}

/// A line of the record of the order of locks.
pub(crate) fn edge(held: &str, asked: &str) -> String {
    let edge = Edge {
        held: end(held, "a.rs:1"),
        asked: end(asked, "b.rs:2"),
        gates: Vec::new(),
    };
    edge.encode()
}

pub(crate) fn declared(krate: &str, name: &str, pattern: &str) -> Record {
    Record {
        kind: "struct".into(),
        scope: "none".into(),
        derivation: "md5".into(),
        component: Some("Ledger".into()),
        purpose: Some("One account".into()),
        ..site(krate, name, 3, &[pattern], &[&format!("pattern {pattern}")])
    }
}
