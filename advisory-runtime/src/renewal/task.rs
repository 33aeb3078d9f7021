//! The renewal of a row: when it is sent, and when it is given up.

use super::{End, Tenure, UNANSWERED};
use diesel::result::Error as DieselError;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A row that can be renewed.
pub(crate) trait Renew: Send + Sync {
    /// The product's error.
    type Error: Into<DieselError> + Send;

    fn tenure(&self) -> &Tenure;

    /// Renews the row in one round trip of at most `left`; `false` if it is not held any more.
    fn renew(&self, left: Duration) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Waits for the end of the transaction that ended the tenure, and tells whether it was committed.
    fn is_ended(&self, left: Duration) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Is called for a failed renewal, which is tried again.
    fn failed(&self, _: &Self::Error) {}
}

/// Renews until the row is lost or the tenure has ended. Runs on a task of its own, so that work which blocks its thread is renewed.
pub(crate) async fn renew_until_lost(row: &impl Renew, every: Duration) {
    let tenure = row.tenure();
    // Allows several tries before the expiry.
    let pause = (every / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
    // Of a grant whose answer was lost, and of a row that was claimed long ago, less than a whole ttl is left.
    let left = tenure.deadline().saturating_duration_since(Instant::now());
    let mut next = Instant::now() + every.min(left / 2);
    loop {
        sleep_until(next).await;
        let sent = Instant::now();
        let left = tenure.expires().saturating_duration_since(sent);
        let answer = match tenure.end() {
            End::Done => return,
            // The answer to its commit may never come.
            End::Inside(_) if tenure.return_by().is_some_and(|by| sent >= by) => break,
            // The open transaction has the row locked, so nobody else can take it.
            End::Inside(_) => row.is_ended(left.max(UNANSWERED)).await.map(|is_ended| {
                tenure.settle(is_ended);
                sent
            }),
            End::Open | End::Asked | End::RolledBack if tenure.is_lost() || tenure.is_expired() => {
                break;
            }
            End::Open | End::Asked | End::RolledBack => match row.renew(left).await {
                Ok(false) if !matches!(tenure.end(), End::Inside(_)) => break,
                Ok(is_held) => Ok(if is_held { sent + every } else { sent }),
                Err(error) => Err(error),
            },
        };
        next = answer.unwrap_or_else(|error| {
            row.failed(&error);
            tenure.blame(error.into());
            Instant::now() + pause
        });
    }
    tenure.lose();
}
