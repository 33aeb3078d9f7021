//! Calls that poll instead of waiting at the server: their requests, and their tries as the server
//! shows them.

use crate::Database;
use advisory_runtime::{Isolation, Request};
use std::time::Duration;

/// The interval of a call that must not have a second try: longer than any test.
pub const HOUR: Duration = Duration::from_secs(3600);

/// An interval that is soon over.
pub const SHORT: Duration = Duration::from_millis(2);

/// Each way to hold locks; one of them is on key 7.
pub fn ways() -> Vec<(&'static str, Request)> {
    let strict = Request::new(7).isolation(Isolation::Serializable);
    let requests = [
        Request::new(7),
        Request::all([6, 7, 8]),
        Request::new(7).shared(),
    ];
    let sessions = requests.clone().map(|request| ("session", request));
    let xacts = requests.map(|request| ("xact", request));
    [("xact", strict)]
        .into_iter()
        .chain(xacts)
        .chain(sessions)
        .collect()
}

/// Waits until a try of this backend has found the lock held, and the backend is idle: no
/// statement, no transaction, no snapshot.
pub async fn until_missed(db: &Database, pid: i32) {
    until_idle(db, pid, "state = 'idle'").await;
}

/// Waits until a try has found the lock held and the backend is as `is_idle` says, a condition on
/// `pg_stat_activity`.
pub async fn until_idle(db: &Database, pid: i32, is_idle: &str) {
    let other = format!(
        "SELECT state || ': ' || query FROM pg_stat_activity WHERE pid = {pid} AND NOT ({is_idle} \
         AND backend_xmin IS NULL AND query LIKE '%pg_try_advisory%')"
    );
    db.until_none("a missed try", &other).await;
}

/// Waits until the last statement of some idle backend was a try.
pub async fn until_tried(db: &Database) {
    let tried = "SELECT FROM pg_stat_activity WHERE state = 'idle' \
         AND datname = current_database() AND query LIKE '%pg_try_advisory%'";
    db.until_some("a missed try", tried).await;
}
