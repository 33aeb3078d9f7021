//! When is the row renewed, and when does the renewal give up?

use super::{End, Hold};
use crate::Error;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A row that can be renewed.
pub(crate) trait Renew: Send + Sync {
    fn hold(&self) -> &Hold;

    /// Renews it, in one round trip that takes at most `left`: `false` when it is not held any more.
    fn renew(&self, left: Duration) -> impl Future<Output = Result<bool, Error>> + Send;

    /// A renewal failed, and is tried again.
    fn failed(&self, _: &Error) {}
}

/// Renews until the row is lost or was ended. Runs on a task of its own, so that work which keeps its thread busy is renewed too.
pub(crate) async fn renew_until_lost(row: &impl Renew, every: Duration) {
    let hold = row.hold();
    // Several tries before the expiry.
    let pause = (every / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
    let mut next = Instant::now() + every;
    loop {
        sleep_until(next).await;
        if hold.end() == End::Done {
            return;
        }
        let sent = Instant::now();
        if hold.is_lost() || hold.is_expired() {
            break;
        }
        let left = hold.expires().saturating_duration_since(sent);
        match row.renew(left).await {
            Ok(true) => next = sent + every,
            Ok(false) => break,
            Err(error) => {
                row.failed(&error);
                hold.blame(error);
                next = Instant::now() + pause;
            }
        }
    }
    hold.lose();
}
