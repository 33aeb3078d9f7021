//! A program with known locks, and sessions that take those.

use crate::statements::run;
use advisory_runtime::inventory::Site;
use advisory_runtime::monitor::{Certainty, Lock, Names};
use diesel_async::AsyncPgConnection;

/// The pattern of the lock site `book`.
pub const BOOKING: &str = "booking:<tenant: int>:<day: date>";

/// A lock site of the program.
pub fn site(function: &str, written: &str, key: &str, scope: &str) -> Site {
    Site {
        kind: "fn".into(),
        written: vec![written.into()],
        keys: vec![key.into()],
        derivation: "sha256".into(),
        scope: scope.into(),
        mode: "exclusive".into(),
        module: "shop".into(),
        function: function.into(),
        krate: "shop".into(),
        ..Site::default()
    }
}

/// A lock site with a pattern.
pub fn pattern(function: &str, pattern: &str) -> Site {
    site(function, pattern, &format!("pattern {pattern}"), "xact")
}

/// A program with known locks.
fn shop() -> Vec<Site> {
    let cleanup = Site {
        name: Some("cleanup".into()),
        ..site("clean_up", "42424242", "number 42424242", "session")
    };
    vec![
        cleanup,
        site("pair", "(7, 1)", "number (7,1)", "xact"),
        site("tenant", "(8, tenant)", "number (8,?)", "xact"),
        pattern("report", "nightly-report"),
        pattern("book", BOOKING),
        pattern("anything", "free:<text: text>"),
        site("mail", "mail:<id: int>", "pattern mail:<id: int>", "lease"),
        site("sweep", "sweep", "pattern sweep", "lease"),
    ]
}

/// The names of the program's locks.
pub fn names() -> Names {
    Names::of(shop()).unwrap()
}

/// The name of a lock, and how certain it is.
pub fn called(lock: &Lock) -> Vec<(Certainty, &str)> {
    let names = lock.names.iter();
    names.map(|name| (name.certainty, &*name.key)).collect()
}

/// Takes a session-level lock without a comment.
pub async fn take(conn: &mut AsyncPgConnection, arguments: &str) {
    run(conn, &format!("SELECT pg_advisory_lock({arguments})")).await;
}

/// A session-level lock with a comment.
pub async fn take_as(conn: &mut AsyncPgConnection, text: &str, arguments: &str) {
    let message = format!("/*advisory:{text}*/;SELECT pg_catalog.pg_advisory_lock({arguments})");
    run(conn, &message).await;
}
