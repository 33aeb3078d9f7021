//! Polls for locks instead of waiting at the server.
//!
//! A wait at the server is a statement, and a statement has a snapshot, for which
//! `CREATE INDEX CONCURRENTLY` waits. A call that polls has no snapshot between two tries.

use super::call::Call;
use super::way;
use crate::driver::Driver;
use crate::rows::Backoff;
use crate::{Error, Request, Wait};
use std::time::{Duration, Instant};

/// Tries until the locks are free. Between two tries nothing is in flight, so dropping the call
/// there leaves the connection open.
pub(super) async fn poll<D: Driver>(conn: &mut D, call: &mut Call) -> Result<(), Error> {
    let request = call.request.clone();
    let mut pauses = Pauses::new(&request);
    loop {
        call.request = request.attempt();
        match way::acquire(conn, call).await {
            Ok(()) => return Ok(()),
            Err(error) => D::pause(pauses.after(error)?).await,
        }
    }
}

/// The longest pause, as a multiple of the interval, unless the request gives one.
const LONGEST: u32 = 8;
/// The shortest interval, so that a call does not send one try after another.
const SHORTEST: Duration = Duration::from_millis(1);

/// The pauses between the tries of a call.
#[derive(Debug)]
pub(super) struct Pauses {
    backoff: Backoff,
    since: Instant,
    budget: Wait,
    queued: Duration,
}

impl Pauses {
    pub(super) fn new(request: &Request) -> Self {
        let interval = request.poll.unwrap_or_default().max(SHORTEST);
        let longest = request.poll_max.unwrap_or(interval.saturating_mul(LONGEST));
        Self {
            backoff: Backoff::between(interval, longest.max(interval)),
            since: Instant::now(),
            budget: request.budget(),
            queued: request.queued,
        }
    }

    pub(super) fn waited(&self) -> Duration {
        self.since.elapsed() + self.queued
    }

    /// The pause after a try that found the lock held, or the error that ends the call.
    pub(super) fn after(&mut self, error: Error) -> Result<Duration, Error> {
        let Error::NotAvailable { lock, busy } = error else {
            return Err(error);
        };
        let left = match self.budget {
            Wait::Never => return Err(Error::NotAvailable { lock, busy }),
            Wait::For(budget) => budget.saturating_sub(self.since.elapsed()),
            Wait::Session | Wait::Forever => Duration::MAX,
        };
        if left.is_zero() {
            return Err(Error::TimedOut {
                lock,
                busy,
                waited: self.waited(),
                source: None,
            });
        }
        // The last try is at the end of the budget.
        Ok(self.backoff.pause().min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::Pauses;
    use crate::{BusyLock, Error, Request};
    use std::time::Duration;

    fn held() -> Error {
        Error::NotAvailable {
            lock: "a".into(),
            busy: BusyLock::new(&[]),
        }
    }

    /// The pauses of a call, of which each is at least half as long as expected, and not longer.
    fn pauses<const N: usize>(request: &Request, expected: [Duration; N]) -> [Duration; N] {
        let mut pauses = Pauses::new(request);
        expected.map(|longest| {
            let pause = pauses.after(held()).expect("it has no end");
            let is_expected = (longest / 2..=longest).contains(&pause);
            assert!(is_expected, "{pause:?} of {longest:?}");
            pause
        })
    }

    #[test]
    fn pauses_grow_to_eight_intervals_with_jitter() {
        let interval = Duration::from_millis(250);
        let request = Request::new(7).poll(interval);
        let expected = [1, 2, 4, 8, 8, 8].map(|times| interval * times);
        let mut firsts = [(); 20].map(|()| pauses(&request, expected)[0]).to_vec();
        firsts.sort_unstable();
        firsts.dedup();
        assert!(firsts.len() > 10, "{firsts:?}");
    }

    #[test]
    fn a_longest_pause_bounds_them_all() {
        let second = Duration::from_secs(1);
        for (longest, expected) in [(1, [1, 1, 1]), (3, [1, 2, 3]), (0, [1, 1, 1])] {
            let request = Request::new(7).poll(second).poll_max(second * longest);
            pauses(&request, expected.map(|times| second * times));
        }
    }

    #[test]
    fn pauses_end_with_the_wait_and_are_never_zero() {
        let wait = Duration::from_secs(60);
        let request = Request::new(7).wait(wait).poll(Duration::MAX);
        let pause = Pauses::new(&request).after(held());
        assert!(pause.expect("the wait is not over") <= wait);
        let request = Request::new(7).poll(Duration::ZERO);
        let pause = Pauses::new(&request).after(held());
        assert!(pause.expect("it has no end") >= Duration::from_micros(500));
    }
}
