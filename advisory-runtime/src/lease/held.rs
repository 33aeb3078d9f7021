//! A lease that is renewed in the background, and the body that runs under it.

use super::keeper::Finish;
use super::{Lease, running};
use crate::Error;
use crate::debug::LockSet;
use crate::expansion::Fallible;
use crate::observe::{Outcome, Telemetry};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A lease that is renewed until it is finished or dropped.
///
/// A drop releases it in the background, as does a panic; where the process dies, it expires.
#[derive(Debug)]
#[must_use = "dropping it releases the lease"]
pub struct Held {
    lease: Lease,
    finish: Option<oneshot::Sender<Finish>>,
    max_hold: Option<Duration>,
    keep: Option<Duration>,
    since: Instant,
    pub(super) trail: Option<Telemetry>,
    /// What it is in the order of locks.
    pub(super) taken: Option<Arc<LockSet>>,
}

impl Held {
    pub(super) fn new(
        lease: Lease,
        finish: oneshot::Sender<Finish>,
        max_hold: Option<Duration>,
        keep: Option<Duration>,
    ) -> Self {
        Self {
            lease,
            finish: Some(finish),
            max_hold,
            keep,
            since: Instant::now(),
            trail: None,
            taken: None,
        }
    }

    /// The lease, for the body: its token, and what makes a write conditional on it.
    #[must_use]
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    #[doc(hidden)]
    #[must_use]
    pub fn acquired(&self) -> Lease {
        self.lease.clone()
    }

    /// Runs a body under the lease, and drops it before the lease expires.
    ///
    /// # Errors
    ///
    /// [`Error::LockLost`] when a renewal was refused, or the server was not reached until the lease is about to expire (a tenth of
    /// its ttl before, at most a second): the body was dropped at its last `await`, or it ended too late and its result is
    /// refused. [`Error::HoldExceeded`] after the request's `max_hold`; the lease is released then.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the body, and the lease goes on.
    ///
    /// # Examples
    ///
    /// The page of [`Leases::acquire`](super::Leases::acquire) has one.
    pub async fn run<F: Future>(&mut self, body: F) -> Result<F::Output, Error> {
        let outcome = self.watch(body).await;
        if matches!(outcome, Err(Error::HoldExceeded { .. })) {
            // The body is dropped, so nothing runs under it; gone when the function returns.
            drop(self.end(None).await);
        }
        if let Err(error) = &outcome
            && let Some(mut trail) = self.trail.take()
        {
            trail.record_end(Err(error));
        }
        outcome
    }

    async fn watch<F: Future>(&self, body: F) -> Result<F::Output, Error> {
        let standing = &self.lease.standing;
        let margin = standing.margin();
        // Past the end of all time is no bound.
        let until = self
            .max_hold
            .and_then(|max_hold| self.since.checked_add(max_hold));
        let mut body = pin!(body);
        loop {
            // Asked for before the state is looked at, so that no change between is missed.
            let mut changed = pin!(standing.changed.notified());
            changed.as_mut().enable();
            let deadline = standing.deadline();
            let wake = deadline.checked_sub(margin).unwrap_or(deadline);
            let wake = until.map_or(wake, |until| until.min(wake));
            let mut timer = pin!(tokio::time::sleep_until(wake));
            let result = poll_fn(|context| {
                if standing.is_over_within(margin) {
                    return Poll::Ready(Some(Err(self.lost())));
                }
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Poll::Ready(Some(Err(self.exceeded())));
                }
                #[cfg(feature = "tracing")]
                let _entered = self.trail.as_ref().map(|trail| trail.span().entered());
                let taken = self.taken.as_ref();
                let running = taken.map(|taken| running::enter(&self.lease, taken));
                let polled = body.as_mut().poll(context);
                drop(running);
                if let Poll::Ready(result) = polled {
                    return Poll::Ready(Some(if standing.is_over() {
                        Err(self.lost())
                    } else if until.is_some_and(|until| Instant::now() >= until) {
                        Err(self.exceeded())
                    } else {
                        Ok(result)
                    }));
                }
                let is_changed = changed.as_mut().poll(context).is_ready();
                if is_changed || timer.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                Poll::Pending
            })
            .await;
            if let Some(result) = result {
                return result;
            }
        }
    }

    /// Releases the lease, or leaves the key taken for the request's `keep` when the result is `Ok`.
    ///
    /// # Locking
    ///
    /// One `UPDATE`, on a connection of the pool: that of [`Table::release`](super::Table::release), or of
    /// [`Table::keep`](super::Table::keep).
    ///
    /// # Errors
    ///
    /// The body's own error as it is. For an `Ok` [`Error::LockLost`] when the lease was lost before the body had returned, or
    /// when it could not be kept: then the key may be free too early. A release that does not reach the server is none: the lease
    /// was held while the body ran, and ends by itself.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe in that nothing is left: the release is on its way.
    pub async fn finish<T, E: From<Error>>(self, result: Result<T, E>) -> Result<T, E> {
        self.finished(result).await?
    }

    async fn finished<R: Fallible>(mut self, result: R) -> Result<R, Error> {
        let trail = self.trail.take();
        let ended = self.ended(result).await;
        if let Some(mut trail) = trail {
            trail.record_end(match &ended {
                Ok(result) if result.is_ok() => Ok(Outcome::Done),
                Ok(_) => Ok(Outcome::Failed),
                Err(error) => Err(error),
            });
        }
        ended
    }

    async fn ended<R: Fallible>(mut self, result: R) -> Result<R, Error> {
        let keep = self.keep.filter(|_| result.is_ok());
        let standing = &self.lease.standing;
        let (was_held, deadline) = (!standing.is_over(), standing.deadline());
        let ended = self.end(keep).await;
        if !result.is_ok() {
            return Ok(result);
        }
        // What is over on the server though not here was taken away while the body ran.
        let is_taken = || Instant::now() < deadline;
        match ended {
            _ if !was_held => Err(self.lost()),
            Ok(false) if keep.is_some() || is_taken() => Err(self.lost()),
            Err(error) if keep.is_some() => Err(Error::LockLost {
                lock: self.lease.name(),
                source: Some(error.into()),
            }),
            Ok(_) | Err(_) => Ok(result),
        }
    }

    async fn end(&mut self, keep: Option<Duration>) -> Result<bool, Error> {
        let Some(finish) = self.finish.take() else {
            return Ok(false);
        };
        let (reply, ended) = oneshot::channel();
        if finish.send(Finish { keep, reply }).is_err() {
            return Ok(false);
        }
        ended
            .await
            .unwrap_or_else(|gone| Err(Error::Pool(Box::new(gone))))
    }

    fn lost(&self) -> Error {
        Error::LockLost {
            lock: self.lease.name(),
            source: self.lease.standing.reason(),
        }
    }

    fn exceeded(&self) -> Error {
        Error::HoldExceeded {
            lock: self.lease.name(),
            max_hold: self.max_hold.unwrap_or_default(),
        }
    }
}

/// What the attribute's expansion calls.
#[doc(hidden)]
pub async fn finish_at<R: Fallible>(held: Held, result: R) -> Result<R, Error> {
    held.finished(result).await
}
