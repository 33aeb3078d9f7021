//! What time is it, for all processes of the house? They share one machine, and so one clock.
//!
//! Only recovery times are measured with it: the database's ticks order the events.

use std::future::pending;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub(crate) fn micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

/// Lets a fault last, or a body think: what has to take time, and waits for nothing.
pub(crate) async fn pass(time: Duration) {
    drop(tokio::time::timeout(time, pending::<()>()).await);
}
