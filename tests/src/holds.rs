//! The bound on how long a lock is held: rounds in which this process was not suspended past it.

use std::time::{Duration, Instant};

/// How much longer the server's own bound is.
pub const SERVERS_MORE: Duration = Duration::from_secs(1);

/// How many attempts a busy machine has to run one round in time.
pub const ROUNDS: usize = 20;

/// Runs rounds until one is in time. A round returns `None` if this process was suspended past the
/// server's bound: the server has ended the session, so the round proves nothing about the client.
pub async fn in_time<T>(mut round: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..ROUNDS {
        if let Some(seen) = round().await {
            return seen;
        }
    }
    panic!("none of {ROUNDS} rounds was in time");
}

/// Returns whether the server's bound cannot have passed yet.
pub fn is_early(started: Instant, bound: Duration) -> bool {
    started.elapsed() < bound + SERVERS_MORE
}
