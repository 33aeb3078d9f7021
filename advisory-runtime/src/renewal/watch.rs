//! Stops work before others can take the row that it holds.

use super::Hold;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::time::{Instant, sleep_until};

/// Why work was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The row was lost, or is about to expire.
    Lost,
    /// The statement that ends the hold, or the transaction that it is in, was not answered in time.
    Unanswered,
    /// The work reached its limit.
    Exceeded,
}

/// Runs `work` until it ends, the hold is lost or about to expire, or `limit` has passed. Each poll runs inside what `enter` returns.
pub(crate) async fn watch<F: Future, G>(
    hold: &Hold,
    limit: Option<Instant>,
    enter: impl Fn() -> G,
    work: F,
) -> Result<F::Output, Stop> {
    let mut work = pin!(work);
    let is_exceeded = || limit.is_some_and(|limit| Instant::now() >= limit);
    loop {
        let mut changed = pin!(hold.changed());
        // Before the state is read, so that no change is missed.
        changed.as_mut().enable();
        // The deadline of a hold that has ended may be over, and must not wake.
        let now = Instant::now();
        let alarms = [Some(hold.deadline()), hold.return_by(), limit];
        let alarms = alarms.into_iter().flatten();
        let wake = alarms.filter(|alarm| *alarm > now).min();
        let mut timer = pin!(sleep_until(wake.unwrap_or(now)));
        let ended = poll_fn(|context| {
            if let Some(stop) = hold.stop() {
                return Poll::Ready(Some(Err(stop)));
            }
            if is_exceeded() {
                return Poll::Ready(Some(Err(Stop::Exceeded)));
            }
            let entered = enter();
            let polled = work.as_mut().poll(context);
            drop(entered);
            if let Poll::Ready(result) = polled {
                let stop = is_exceeded().then_some(Stop::Exceeded);
                return Poll::Ready(Some(stop.map_or(Ok(result), Err)));
            }
            // The work may have found out that the hold is lost.
            if let Some(stop) = hold.stop() {
                return Poll::Ready(Some(Err(stop)));
            }
            let is_changed = changed.as_mut().poll(context).is_ready();
            if is_changed || wake.is_some() && timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await;
        if let Some(ended) = ended {
            return ended;
        }
    }
}
