//! The clock of all processes of the run: they share one machine.
//!
//! It is used for recovery times only. The database's ticks order the events.

use std::future::pending;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

/// Blocks every thread of this runtime, this one too, as a program does that calls blocking code in
/// async functions.
pub(crate) fn block_runtime(time: Duration) {
    let end = Instant::now() + time;
    let runtime = tokio::runtime::Handle::current();
    for _ in 1..runtime.metrics().num_workers() {
        let runtime = runtime.clone();
        // From another thread: what a task spawns can wait for the thread of that task.
        std::thread::spawn(move || drop(runtime.spawn(async move { sleep_until(end) })));
    }
    sleep_until(end);
}

#[allow(
    clippy::disallowed_methods,
    reason = "the fault is a thread that sleeps"
)]
fn sleep_until(end: Instant) {
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}
