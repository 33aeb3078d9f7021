//! The clock of all processes of the run: they share one machine.
//!
//! It is used for recovery times only. The database's ticks order the events.

use std::future::pending;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub(crate) fn micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

/// Sleeps: for the duration of a fault, or the work of a body.
pub(crate) async fn pass(time: Duration) {
    drop(tokio::time::timeout(time, pending::<()>()).await);
}
