//! Stops work before others can take the row that it holds.

use super::{Stop, Tenure};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use tokio::time::{Instant, sleep_until};

/// Runs `work` until it ends, the tenure is lost or about to expire, or `limit` has passed. Each poll runs inside what `enter` returns.
pub(crate) async fn watch<F: Future, G>(
    tenure: &Tenure,
    limit: Option<Instant>,
    enter: impl Fn() -> G,
    work: F,
) -> Result<F::Output, Stop> {
    let mut work = pin!(work);
    let is_exceeded = || limit.is_some_and(|limit| Instant::now() >= limit);
    loop {
        let mut changed = pin!(tenure.changed());
        // Before the state is read, so that no change is missed.
        changed.as_mut().enable();
        // The deadline of a tenure that has ended may be over, and must not wake.
        let now = Instant::now();
        let alarms = [Some(tenure.deadline()), tenure.return_by(), limit];
        let alarms = alarms.into_iter().flatten();
        let wake = alarms.filter(|alarm| *alarm > now).min();
        // Once the work is pending: work that is ready at once, such as a blocking body, needs no runtime with a timer.
        let mut timer = pin!(None);
        let ended = poll_fn(|context| {
            if let Some(stop) = tenure.stop() {
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
            // The work may have found out that the tenure is lost.
            if let Some(stop) = tenure.stop() {
                return Poll::Ready(Some(Err(stop)));
            }
            if changed.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            if timer.is_none() {
                timer.set(wake.map(sleep_until));
            }
            let timer = timer.as_mut().as_pin_mut();
            match timer.map(|timer| timer.poll(context)) {
                Some(Poll::Ready(())) => Poll::Ready(None),
                _ => Poll::Pending,
            }
        })
        .await;
        if let Some(ended) = ended {
            return ended;
        }
    }
}
