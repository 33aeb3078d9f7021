//! Asking again and again instead of waiting at the server.
//!
//! A wait at the server is a statement, and a statement has a snapshot, for which `CREATE INDEX CONCURRENTLY` waits. Between two tries
//! a session has none, and a connection that the call took from a pool is back in it.

use super::begin::{self, record_outcome};
use super::guard::{Held, Place, Scope};
use super::{nested, session};
use crate::driver::Driver;
use crate::observe::Telemetry;
use crate::{Error, Request, Wait, debug};
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// How many times the interval the longest pause is.
const LONGEST: u32 = 8;
/// The shortest interval: with none, a call would do nothing but ask.
const SHORTEST: Duration = Duration::from_millis(1);

/// When a call asks again, and when it gives up.
#[derive(Debug)]
struct Pauses {
    next: Duration,
    longest: Duration,
    /// From here on the budget counts.
    since: Instant,
    budget: Wait,
    queued: Duration,
}

impl Pauses {
    fn new(request: &Request) -> Self {
        let interval = request.poll.unwrap_or_default().max(SHORTEST);
        Self {
            next: interval,
            longest: interval.saturating_mul(LONGEST),
            since: Instant::now(),
            budget: request.budget(),
            queued: request.queued,
        }
    }

    /// How long the call has waited, with its time in the queue of this process.
    fn waited(&self) -> Duration {
        self.since.elapsed() + self.queued
    }

    /// How long to pause behind a try that found the lock held, or why the call ends.
    fn after(&mut self, error: Error) -> Result<Duration, Error> {
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
        // Adds jitter, and tries once more at the end of the budget.
        let pause = self.next.mul_f64(0.5 + 0.5 * chance());
        self.next = self.next.saturating_mul(2).min(self.longest);
        Ok(pause.min(left))
    }
}

/// Asks on the connection of the guard until the locks are free. Between two tries nothing is in flight, so to drop the call there
/// leaves the connection as it is. With `outer`, the transaction around the call keeps the locks.
pub(super) async fn poll<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    request: &Request,
    outer: Option<NonZeroU32>,
) -> Result<(), Error> {
    let mut pauses = Pauses::new(request);
    let mut attempt = request.attempt();
    loop {
        match ask(held, &mut attempt, outer).await {
            Ok(()) => return Ok(()),
            Err(error) => D::pause(pauses.after(error)?).await,
        }
    }
}

async fn ask<O: ?Sized, D: Driver>(
    held: &mut Held<'_, O, D>,
    attempt: &mut Request,
    outer: Option<NonZeroU32>,
) -> Result<(), Error> {
    held.budget = Wait::Never;
    if !attempt.permits.is_empty() {
        // From another permit on, so that not all calls meet at the first.
        let from = usize::try_from(random()).unwrap_or(0) % attempt.permits.len();
        attempt.permits.rotate_left(from);
        held.permits.clone_from(&attempt.permits);
    }
    match (held.scope, outer) {
        (Scope::Xact, Some(outer)) => nested::lock(held, outer, attempt).await,
        (Scope::Xact, None) => begin::ask(held, attempt).await,
        (Scope::Session, _) => session::acquire(held, attempt).await,
    }
}

/// The tries of a call that takes a connection for each of them.
#[doc(hidden)]
#[derive(Debug)]
pub struct Tries {
    request: Request,
    scope: Scope,
    pauses: Pauses,
    /// Behind the last try.
    pause: Duration,
    /// Until the lock is held, or the call has failed.
    telemetry: Option<Telemetry>,
    /// Whether a try or a pause goes on, and not the caller's code that takes the connection.
    is_under_way: bool,
}

impl Tries {
    /// For transaction-level locks.
    #[must_use]
    pub fn xact(request: Request) -> Self {
        let telemetry = request.telemetry("xact");
        Self::new(request, Scope::Xact, telemetry)
    }

    /// For session-level locks.
    #[must_use]
    pub fn session(request: Request) -> Self {
        let telemetry = request.telemetry("session");
        Self::new(request, Scope::Session, telemetry)
    }

    fn new(request: Request, scope: Scope, telemetry: Telemetry) -> Self {
        Self {
            pauses: Pauses::new(&request),
            request,
            scope,
            pause: Duration::ZERO,
            telemetry: Some(telemetry),
            is_under_way: false,
        }
    }

    pub(super) async fn attempt<'o, O: ?Sized, D: Driver>(
        &mut self,
        owner: &'o mut O,
        place: Place<O, D>,
    ) -> Result<Option<Held<'o, O, D>>, Error> {
        self.is_under_way = true;
        self.request.queued = self.pauses.waited();
        let held = match self.attempt_inner(owner, place).await {
            Ok(held) => Ok(held),
            Err(error) => match self.pauses.after(error) {
                Ok(pause) => {
                    self.pause = pause;
                    return Ok(None);
                }
                Err(error) => Err(error),
            },
        };
        match self.telemetry.take() {
            Some(telemetry) => record_outcome(telemetry, held).map(Some),
            None => held.map(Some),
        }
    }

    async fn attempt_inner<'o, O: ?Sized, D: Driver>(
        &self,
        owner: &'o mut O,
        place: Place<O, D>,
    ) -> Result<Held<'o, O, D>, Error> {
        let mut held = begin::prepare_guard(owner, place, self.scope, &self.request)?;
        if debug::is_on() {
            Box::pin(begin::check(&mut held)).await?;
        }
        ask(&mut held, &mut self.request.attempt(), None).await?;
        begin::mark_held(&mut held).await?;
        Ok(held)
    }

    pub(crate) async fn pause<D: Driver>(&mut self) {
        D::pause(self.pause).await;
        self.is_under_way = false;
    }
}

/// To find no connection is an error of the caller's, and drops no call.
impl Drop for Tries {
    fn drop(&mut self) {
        if let Some(telemetry) = self.telemetry.take()
            && !self.is_under_way
        {
            telemetry.forget();
        }
    }
}

/// One try on a connection: `None` if the locks are held, and there is another behind [`pause`].
#[doc(hidden)]
#[cfg(feature = "diesel-async")]
pub async fn try_at<'o, O: ?Sized>(
    tries: &mut Tries,
    owner: &'o mut O,
    place: Place<O, diesel_async::AsyncPgConnection>,
) -> Result<Option<crate::xact::Held<'o, O>>, Error> {
    tries.attempt(owner, place).await
}

/// Waits until the next try, with no connection.
#[doc(hidden)]
#[cfg(feature = "diesel-async")]
pub async fn pause(tries: &mut Tries) {
    tries.pause::<diesel_async::AsyncPgConnection>().await;
}

/// [`try_at`] on a blocking connection.
#[doc(hidden)]
#[cfg(feature = "postgres")]
pub fn try_blocking_at<'o, O: ?Sized>(
    tries: &mut Tries,
    owner: &'o mut O,
    place: Place<O, diesel::pg::PgConnection>,
) -> Result<Option<crate::blocking::Held<'o, O>>, Error> {
    crate::driver::answered(tries.attempt(owner, place))
}

/// [`pause`] for a thread.
#[doc(hidden)]
#[cfg(feature = "postgres")]
pub fn pause_blocking(tries: &mut Tries) {
    crate::driver::answered(tries.pause::<diesel::pg::PgConnection>());
}

/// Between 0 and 1.
pub(crate) fn chance() -> f64 {
    f64::from(random()) / f64::from(u32::MAX)
}

fn random() -> u32 {
    let random = RandomState::new().hash_one(0_u8);
    u32::try_from(random >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Pauses;
    use crate::{BusyLock, Error, Request};
    use std::time::Duration;

    fn held() -> Error {
        Error::NotAvailable {
            lock: "a".into(),
            busy: BusyLock::default(),
        }
    }

    #[test]
    fn pauses_grow_to_eight_times_the_interval_and_no_two_calls_keep_step() {
        let interval = Duration::from_millis(250);
        let request = Request::new(7).poll(interval);
        let mut firsts = Vec::new();
        for _ in 0..20 {
            let mut pauses = Pauses::new(&request);
            for longest in [1, 2, 4, 8, 8, 8].map(|times| interval * times) {
                let pause = pauses.after(held()).expect("it has no end");
                assert!(
                    (longest / 2..=longest).contains(&pause),
                    "{pause:?} of {longest:?}"
                );
                if longest == interval {
                    firsts.push(pause);
                }
            }
        }
        firsts.sort_unstable();
        firsts.dedup();
        assert!(firsts.len() > 10, "{firsts:?}");
    }

    #[test]
    fn no_pause_goes_beyond_the_end_of_the_wait_and_the_shortest_is_not_none() {
        let wait = Duration::from_secs(60);
        let request = Request::new(7).wait(wait).poll(Duration::MAX);
        let pause = Pauses::new(&request).after(held());
        assert!(pause.expect("the wait is not over") <= wait);
        let request = Request::new(7).poll(Duration::ZERO);
        let pause = Pauses::new(&request).after(held());
        assert!(pause.expect("it has no end") >= Duration::from_micros(500));
    }
}
