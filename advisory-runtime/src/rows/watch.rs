//! Stops work before others can take the row that it holds.

use super::{Hold, Stop};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use tokio::time::{Instant, sleep_until};

/// Runs `work` until it ends, the hold is lost or about to expire, or `limit` has passed. Each poll
/// runs inside what `enter` returns.
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
        let alarms = [Some(hold.deadline()), hold.body_deadline(), limit];
        let alarms = alarms.into_iter().flatten();
        let wake = alarms.filter(|alarm| *alarm > now).min();
        // Once the work is pending: work that is ready at once, such as a blocking body, needs no
        // runtime with a timer.
        let mut timer = pin!(None);
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

/// Returns the future's output, or `None` if `stop` is ready first. Pin a large future before the
/// call, because this function's own future holds its argument twice.
pub(crate) async fn unless<T>(
    mut stop: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::watch;
    use crate::rows::{Hold, Moment, Stop};
    use std::future::{pending, ready};
    use std::time::Duration;
    use tokio::time::{Instant, timeout};

    const TTL: Duration = Duration::from_secs(5);
    /// Without the margin.
    const DEADLINE: Duration = Duration::from_millis(4_500);

    /// How the work ends, and when.
    async fn watched(
        hold: &Hold,
        limit: Option<Duration>,
        work: impl Future<Output = u8>,
    ) -> (Result<u8, Stop>, Duration) {
        let started = Instant::now();
        let limit = limit.map(|limit| started + limit);
        let watched = timeout(TTL * 60, watch(hold, limit, || (), work)).await;
        (watched.expect("it is not stopped"), started.elapsed())
    }

    fn hold() -> Hold {
        Hold::new(Moment::now().plus(TTL), TTL)
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_at_the_first_of_its_limits() {
        let stopped = watched(&hold(), None, pending()).await;
        assert_eq!(stopped, (Err(Stop::Lost), DEADLINE));
        let short = Duration::from_secs(1);
        let stopped = watched(&hold(), Some(short), pending()).await;
        assert_eq!(stopped, (Err(Stop::Exceeded), short));
        let stopped = watched(&hold(), Some(TTL), pending()).await;
        assert_eq!(stopped, (Err(Stop::Lost), DEADLINE));
        let done = watched(&hold(), Some(short), ready(7)).await;
        assert_eq!(done, (Ok(7), Duration::ZERO));
        let done = watched(&hold(), Some(Duration::ZERO), ready(7)).await;
        assert_eq!(done.0, Err(Stop::Exceeded));
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_moves_the_stop() {
        for (lasts, deadline) in [
            (TTL, TTL / 2 + DEADLINE),
            (TTL / 4, Duration::from_millis(3_250)),
        ] {
            let hold = hold();
            let renewed = async {
                tokio::time::advance(TTL / 2).await;
                hold.renewed(Moment::now(), lasts);
                pending().await
            };
            let stopped = watched(&hold, None, renewed).await;
            assert_eq!(stopped, (Err(Stop::Lost), deadline));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_wakes_the_watch() {
        let hold = hold();
        let lost = async {
            tokio::task::yield_now().await;
            hold.lose();
        };
        let (stopped, ()) = tokio::join!(watched(&hold, None, pending()), lost);
        assert_eq!(stopped, (Err(Stop::Lost), Duration::ZERO));
    }
}
