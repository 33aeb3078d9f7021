//! When is the row renewed, and when does the renewal give up?

use super::{End, Hold, UNANSWERED};
use crate::Error;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A row that can be renewed.
pub(crate) trait Renew: Send + Sync {
    fn hold(&self) -> &Hold;

    /// Renews it, in one round trip that takes at most `left`: `false` when it is not held any more.
    fn renew(&self, left: Duration) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Whether the transaction was committed in which the row was ended: asked when it may be over, and waits for its end.
    fn is_ended(&self, left: Duration) -> impl Future<Output = Result<bool, Error>> + Send {
        async move { Ok(!self.renew(left).await?) }
    }

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
        let sent = Instant::now();
        let left = hold.expires().saturating_duration_since(sent);
        let answer = match hold.end() {
            End::Done => return,
            // The row is locked, so nobody else is granted it before the transaction ends.
            End::Inside(_) => row.is_ended(left.max(UNANSWERED)).await.map(|is_ended| {
                hold.settle(is_ended);
                sent
            }),
            End::Open | End::Asked if hold.is_lost() || hold.is_expired() => break,
            End::Open | End::Asked => match row.renew(left).await {
                Ok(false) if !matches!(hold.end(), End::Inside(_)) => break,
                Ok(is_held) => Ok(if is_held { sent + every } else { sent }),
                Err(error) => Err(error),
            },
        };
        next = answer.unwrap_or_else(|error| {
            row.failed(&error);
            hold.blame(error);
            Instant::now() + pause
        });
    }
    hold.lose();
}
